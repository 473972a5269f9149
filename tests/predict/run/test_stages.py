"""The stages of each pipeline rank: every layer once, in its place, with its kind and the ends of the model."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.run.plan import Plan
from predict.run.stages import layers_of_stages, slices, split_layers, stages_of_ranks
from sampling.errors import ConfigError
from tests.predict.workload.parallel_runs import made, spec


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("interleaved-1f1b", 2), ("zbv", 2)])
def test_the_stages_hold_every_layer_once(schedule: str, vpp: int) -> None:
    run = made("llama3-70b", 8, plan__pp=4, plan__vpp=vpp, plan__schedule=schedule, batch__global=16)
    stages = [stage for own in stages_of_ranks(run) for stage in own]
    assert sum(len(stage.kinds) for stage in stages) == run.model.layers
    assert sum(stage.first for stage in stages) == sum(stage.last for stage in stages) == 1


def test_kinds_follow_the_model_s_own_order() -> None:
    run = made(spec("deepseek-v3", 8), plan__pp=2, plan__layout="3,5", plan__tp=1)
    first, last = (own[0] for own in stages_of_ranks(run))
    assert [kind.sparse for kind in first.kinds] == [False] * 3
    assert [kind.sparse for kind in last.kinds] == [True] * 5
    assert (first.first, first.last, last.first, last.last) == (True, False, False, True)


@pytest.mark.parametrize(("schedule", "vpp", "shared"), [("1f1b", 1, False), ("zbv", 2, True)])
def test_a_v_shaped_placement_lets_the_first_rank_share_a_tied_table(schedule: str, vpp: int, shared: bool) -> None:
    run = made("gemma3-27b", 8, plan__pp=2, plan__vpp=vpp, plan__schedule=schedule)
    assert run.model.tied
    assert any(stage.shared_table for stage in stages_of_ranks(run)[0]) == shared


# Layers of each stage: even splits, Megatron's uneven ends and its layout strings, and what is refused of them.

DEEPSEEK = "Et*4|(t*4|)*14tmL"
"""Layout of DeepSeek-V3's 61 layers on 16 stages, as Megatron's documentation writes it."""


def _split(layers: int, stages: int, **plan: Any) -> tuple[int, ...]:
    return split_layers(layers, stages, Plan(**({"pp": stages} | plan)))


@pytest.mark.parametrize(
    ("layers", "stages", "plan", "expected"),
    [
        (12, 4, {}, (3, 3, 3, 3)),
        (14, 4, {}, (4, 4, 3, 3)),
        (61, 16, {"layout": DEEPSEEK}, (4,) * 15 + (1,)),
        (61, 16, {"layout": "Et*3|(t*4|)*14,t*2,L"}, (3, *(4,) * 14, 2)),
        (34, 3, {"layout": "10,12,12"}, (10, 12, 12)),
        (34, 3, {"layout": " 10 , 12 , 12 "}, (10, 12, 12)),
        (34, 1, {"layout": "34"}, (34,)),
        (4, 4, {"layout": "E|tt|tt|L"}, (0, 2, 2, 0)),
        (6, 3, {"layout": "0,3,3"}, (0, 3, 3)),
        (8, 4, {"layout": "E(tt|)*3ttL"}, (2, 2, 2, 2)),
        (9, 3, {"layout": "E(t(t|)*1t)*2tttL"}, (2, 3, 4)),
        (8, 4, {"layout": "Ett|(tt|)*2ttmL"}, (2, 2, 2, 2)),
        (16, 4, {"first_stage_layers": 2, "last_stage_layers": 4}, (2, 5, 5, 4)),
        (14, 4, {"first_stage_layers": 2}, (2, 4, 4, 4)),
        (13, 4, {"last_stage_layers": 1}, (4, 4, 4, 1)),
        (9, 2, {"first_stage_layers": 4, "last_stage_layers": 5}, (4, 5)),
        (16, 8, {"pp": 4, "vpp": 2, "first_stage_layers": 2, "last_stage_layers": 2}, (1, 3, 3, 1, 1, 3, 3, 1)),
        (30, 4, {"count_embedding": 1, "count_loss": 1}, (7, 8, 8, 7)),
        (31, 4, {"count_embedding": 1}, (7, 8, 8, 8)),
        (31, 4, {"count_loss": 1}, (8, 8, 8, 7)),
        (28, 4, {"count_embedding": 1, "count_loss": 3}, (7, 8, 8, 5)),
        (31, 1, {"count_embedding": 1, "count_loss": 1}, (31,)),
        (6, 8, {"count_embedding": 1, "count_loss": 1}, (0, 1, 1, 1, 1, 1, 1, 0)),
    ],
)
def test_layers_of_each_stage(layers: int, stages: int, plan: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert _split(layers, stages, **plan) == expected


@pytest.mark.parametrize(
    ("layers", "stages", "plan", "fragments"),
    [
        (34, 4, {"layout": "10,12,12"}, ["plan.layout: ", "'10,12,12'", "3 stages", "makes 4", "give one for each"]),
        (33, 3, {"layout": "10,12,12"}, ["plan.layout: ", "holds 34 layers", "model has 33", "correct"]),
        (3, 2, {"layout": "Et|txL"}, ["plan.layout: ", "'x'", "unknown", "use E, t, m and L"]),
        (3, 2, {"layout": "Et|(ttL"}, ["plan.layout: ", "'('", "brackets"]),
        (3, 2, {"layout": "Et|tt)L"}, ["plan.layout: ", "')'", "brackets"]),
        (3, 2, {"layout": "Et*|ttL"}, ["plan.layout: ", "'*'", "*N"]),
        (3, 2, {"layout": "t|EttL"}, ["plan.layout: E in 't|EttL'", "out of place", "first stage"]),
        (3, 2, {"layout": "EtE|ttL"}, ["plan.layout: E in 'EtE|ttL'", "out of place", "once"]),
        (3, 2, {"layout": "EtL|tt"}, ["plan.layout: L in 'EtL|tt'", "out of place", "last"]),
        (3, 2, {"layout": "Etm|ttL"}, ["plan.layout: m in 'Etm|ttL'", "out of place", "last"]),
        (34, 3, {"layout": "10;12;12"}, ["plan.layout: ", "use E, t, m and L"]),
        (34, 3, {"layout": "10,,12,12"}, ["plan.layout: ", "'10,,12,12'"]),
        (4, 2, {"layout": "Et*99999999|tL"}, ["plan.layout: ", "99999999", "too many", "correct the count"]),
        (
            4,
            2,
            {"layout": "E" + "(" * 6 + "t" + "*99)" * 6 + "|tL"},
            ["plan.layout: ", "too many", "correct the count"],
        ),
        (4, 2, {"layout": f"Et*{'9' * 5000}|tL"}, ["plan.layout: ", "too many", "correct the count"]),
        (15, 4, {"first_stage_layers": 2, "last_stage_layers": 4}, ["first_stage_layers: 2 first", "4 last", "change"]),
        (9, 2, {"first_stage_layers": 4, "last_stage_layers": 4}, ["first_stage_layers", "leave 1 layers", "change"]),
        (
            15,
            8,
            {"pp": 4, "vpp": 2, "first_stage_layers": 3, "last_stage_layers": 4},
            ["plan.vpp: 2 chunks", "the 3 layers", "change either"],
        ),
        (4, 4, {"count_loss": 9}, ["plan.count_loss: ", "9 for the loss", "lower them"]),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(
    layers: int, stages: int, plan: dict[str, Any], fragments: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        _split(layers, stages, **plan)
    message = str(raised.value)
    assert [fragment for fragment in fragments if fragment not in message] == [], message[:300]


@given(st.integers(1, 200), st.integers(1, 40))
def test_an_even_split_keeps_all_layers_and_puts_the_odd_ones_first(layers: int, stages: int) -> None:
    shares = layers_of_stages(layers, stages)
    assert sum(shares) == layers
    assert max(shares) - min(shares) <= 1
    assert list(shares) == sorted(shares, reverse=True)


@given(st.integers(2, 120), st.integers(2, 16), st.integers(0, 2), st.integers(0, 2))
def test_counted_ends_are_shared_like_layers(layers: int, stages: int, embedding: int, loss: int) -> None:
    try:
        shares = _split(layers, stages, count_embedding=embedding, count_loss=loss)
    except ConfigError:
        assert layers + embedding + loss < 2 * stages
        return
    assert sum(shares) == layers
    whole = [shares[0] + embedding, *shares[1:-1], shares[-1] + loss]
    assert max(whole) - min(whole) <= 1


@given(st.lists(st.integers(0, 9), min_size=2, max_size=12))
def test_letters_and_numbers_say_the_same(shares: list[int]) -> None:
    numbers = ",".join(map(str, shares))
    letters = "E" + "|".join(f"t*{share}" if share else "" for share in shares) + "L"
    wanted = sum(shares), len(shares)
    assert _split(*wanted, layout=numbers) == _split(*wanted, layout=letters) == tuple(shares)


def test_stages_hold_layers_by_number_in_the_order_of_the_model() -> None:
    assert slices((2, 0, 3)) == [range(2), range(2, 2), range(2, 5)]
