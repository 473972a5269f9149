"""How step time follows the size of a run: doubled, it about doubles; it never falls with more work, and it adds up."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.step.breakdown import BUBBLE, OPTIMIZER
from tests.predict.step.ledger_sums import assert_ledger_holds
from tests.predict.workload.parallel_runs import estimated, made, step_us

DENSE, MOE, MLA = "llama3-8b", "qwen3-30b-a3b", "deepseek-v3"
FEW = settings(max_examples=25)

PLANS: list[dict[str, Any]] = [
    {},
    {"tp": 8},
    {"tp": 4, "sp": True, "dp": 2},
    {"pp": 4},
    {"pp": 4, "tp": 2, "dp": 2, "zero": 1},
    {"pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"},
    {"pp": 4, "schedule": "zb-h1"},
    {"pp": 2, "vpp": 2, "schedule": "dualpipe"},
    {"pp": 2, "vpp": 2, "schedule": "zbv"},
    {"pp": 2, "vpp": 2, "schedule": "zbv", "recompute": "full"},
    {"cp": 4, "dp": 2},
    {"cp": 2, "cp_method": "all_to_all"},
    {"dp": 8, "zero": 3},
    {"dp": 16, "zero": 3, "shard": 8},
    {"recompute": "full", "pp": 2},
    {"recompute": "selective", "tp": 2},
]
MIXTURES: list[dict[str, Any]] = [
    {"dp": 8, "ep": 8},
    {"dp": 4, "ep": 2, "etp": 2},
    {"tp": 2, "sp": True, "pp": 2, "dp": 4, "ep": 8},
]


def _of(plan: dict[str, Any]) -> dict[str, Any]:
    return {f"plan__{name}": value for name, value in plan.items()}


def _pipeline_us(microbatches: int, layers: int = 8, **plan: Any) -> float:
    """The step without what is done once: the optimizer and its streams cancel in a difference of two steps."""
    degrees = plan.get("plan__dp", 1)
    return step_us(made(DENSE, layers, batch__global=microbatches * degrees, execution__stragglers=False, **plan))


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_as_many_microbatches_again_take_as_long_again(plan: dict[str, Any]) -> None:
    sixteen, thirty_two, sixty_four = (_pipeline_us(count, **_of(plan)) for count in (16, 32, 64))
    # the first microbatch finds no gradients to add to, so a backward is the mean of all
    assert (sixty_four - thirty_two) / (thirty_two - sixteen) == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.get("schedule") != "dualpipe"], ids=str)
def test_as_many_layers_again_take_as_long_again(plan: dict[str, Any]) -> None:
    """The ends of the model are the same, so that the second half of the layers costs what the first did."""
    eight, sixteen, thirty_two = (_pipeline_us(16, layers, **_of(plan)) for layers in (8, 16, 32))
    assert (thirty_two - sixteen) / (sixteen - eight) == pytest.approx(2, rel=0.05)


def test_attention_grows_with_the_square_of_the_sequence_and_products_in_proportion() -> None:
    short, long = (estimated(made(DENSE, 8, batch__seq_len=seq_len)).breakdown_us for seq_len in (8192, 16384))
    assert long["attention"] / short["attention"] == pytest.approx(4, rel=0.1)
    assert long["gemm"] / short["gemm"] == pytest.approx(2, rel=0.05)
    assert long[OPTIMIZER] == short[OPTIMIZER]


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_longer_sequence_over_as_many_more_ranks_adds_attention_alone(cp: int) -> None:
    alone = estimated(made(DENSE, 8, batch__seq_len=8192)).breakdown_us
    spread = estimated(made(DENSE, 8, batch__seq_len=8192 * cp, plan__cp=cp)).breakdown_us
    assert spread["gemm"] == pytest.approx(alone["gemm"], rel=1e-9)
    assert spread["attention"] / alone["attention"] == pytest.approx(cp, rel=0.15)


_MODELS = st.sampled_from([(DENSE, plan) for plan in PLANS] + [(MOE, plan) for plan in MIXTURES])


@FEW
@given(
    _MODELS,
    st.booleans(),
    st.sampled_from(["bf16", "fp8"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 30_000]),
    st.sampled_from([0, 2000]),
)
def test_the_breakdown_adds_up_to_the_step_and_no_part_of_it_is_negative(
    model_and_plan: tuple[str, dict[str, Any]], overlap: bool, precision: str, micro: int, overhead: int, floor: int
) -> None:
    model, plan = model_and_plan
    overlaps = {f"execution__overlap_{name}": overlap for name in ("gradients", "parameters", "p2p")}
    predicted = estimated(
        made(
            model,
            8,
            **_of(plan),
            **overlaps,
            precision=precision,
            batch__global=64,
            batch__micro=micro,
            execution__step_overhead_us=overhead,
            execution__launch_floor_us=floor,
        )
    )
    step = predicted.step_time.median_us
    assert_ledger_holds(predicted)
    assert 0 <= predicted.bubble_fraction < 1
    assert 0 < predicted.mfu < 1
    assert predicted.tokens_per_second == pytest.approx(64 * 4096 / step * 1e6)


@pytest.mark.parametrize("sequences", [128, 1024])
def test_one_pipeline_rank_has_no_bubble_below_zero_by_rounding(sequences: int) -> None:
    predicted = estimated(made(DENSE, 4, batch={"global": sequences, "micro": 1, "seq_len": 512}))
    work_us = sum(time_us for name, time_us in predicted.breakdown_us.items() if name != BUBBLE)
    assert predicted.median_us < work_us, "this batch rounds up: another one shows what is tested"
    assert predicted.breakdown_us[BUBBLE] == 0.0


@pytest.mark.parametrize(
    "plan",
    [
        {"pp": 16, "layout": "Et*4|(t*4|)*14tmL", "dp": 8, "ep": 8, "tp": 2, "sp": True},
        {"pp": 16, "first_stage_layers": 3, "last_stage_layers": 2, "dp": 8, "ep": 8},
    ],
    ids=str,
)
def test_a_whole_deepseek_v3_adds_up(plan: dict[str, Any]) -> None:
    predicted = estimated(made(MLA, batch__global=256, **_of(plan)))
    assert [stage.layers for stage in predicted.stages][:2] == [plan.get("first_stage_layers", 4), 4]
    assert sum(stage.layers for stage in predicted.stages) == 61
    assert_ledger_holds(predicted)
    assert 0.02 < predicted.mfu < 0.6
