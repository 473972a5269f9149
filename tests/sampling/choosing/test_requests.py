"""What a session asks for: draws, calls files, and what is left out because it is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.call import Request
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.choosing.requests import calls_file_content, missing, read_calls_file, space_filling
from sampling.choosing.shapes import Ranges, draw_models
from sampling.errors import ConfigError
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.store.sample import Sample

RANGES = Ranges(
    dtype="fp32",
    tokens=(64, 1024),
    seq_len=(32, 512),
    hidden=(128, 768),
    head_dims=(32, 64),
    ffn_ratio=(2.0, 4.0),
    vocab=(2048, 16384),
    layers=(1, 6),
    message_bytes=(1024, 2**25),
)
GEMM = Gemm(dtype="fp32", m=8, n=16, k=32)
SAMPLE = Sample(
    call=GEMM,
    phase="forward",
    threads=1,
    busy_ranks=2,
    time_us=1.0,
    low_us=1.0,
    high_us=1.0,
    repeats=7,
    quarantine="",
    session=0,
)


def test_draws_are_the_same_every_time_and_a_longer_draw_begins_with_the_shorter() -> None:
    assert draw_models(RANGES, 5) == draw_models(RANGES, 64)[:5]


def test_draws_stay_in_the_box_and_can_be_split_over_two_ranks() -> None:
    for model in draw_models(RANGES, 64):
        layer = model.layer
        assert layer.heads % 2 == layer.kv_heads % 2 == layer.heads % layer.kv_heads == 0
        assert 128 <= layer.hidden <= 768
        assert 2048 <= model.vocab <= 16384
        assert layer.batch * layer.seq_len <= 1.5 * 1024


def test_draws_fill_every_octave_of_the_hidden_size() -> None:
    hidden = [model.layer.hidden for model in draw_models(RANGES, 32)]
    assert min(hidden) < 192
    assert max(hidden) > 512
    assert len(set(hidden)) >= 6


def test_cells_come_with_their_operators_for_every_second_model() -> None:
    names = [request.call.NAME for request in space_filling(draw_models(RANGES, 2), 1)]
    assert names.count("dense_layer") == names.count("output_head") == 2
    second = names[names.index("gemm") :]
    assert "gemm" not in second[second.index("dense_layer") :]


def test_cells_that_span_ranks_are_asked_for_on_two_ranks_only() -> None:
    models = draw_models(RANGES, 1)
    alone, together = ({request.call.group_size for request in space_filling(models, ranks)} for ranks in (1, 2))
    assert alone == {1}
    assert together == {1, 2}


def test_backwards_that_span_ranks_are_not_split() -> None:
    for request in space_filling(draw_models(RANGES, 1), 2):
        if isinstance(request.call, DenseLayer):
            assert ("backward_weight" in request.phases) == (request.call.tp == 1)


def test_what_a_good_row_answers_is_not_timed_again() -> None:
    request = Request(call=GEMM, phases=("forward", "backward"))
    assert missing([request, request], [SAMPLE], 2, visits=1) == [Request(call=GEMM, phases=("backward",))]
    assert missing([Request(call=GEMM, phases=("forward",))], [SAMPLE], 2, visits=1) == []


def test_a_visit_is_counted_by_its_burst_alone() -> None:
    request = Request(call=GEMM, phases=("forward",))
    assert missing([request], [replace(SAMPLE, state="sustained")], 2, visits=1) == [request]
    both = [SAMPLE, replace(SAMPLE, state="sustained")]
    assert missing([request], both, 2, visits=2) == [request]


VARIETY = {
    "every": 4,
    "experts": [8, 256],
    "topk": [1, 8],
    "skews": [0, 1.2],
    "windows": [256, 4096],
    "head_dims": [64, 128, 256],
    "kernels": ["flash", "math"],
    "dtypes": ["fp8"],
    "compiled": True,
}


def test_varieties_leave_the_models_as_they_are_and_come_after_them() -> None:
    models = draw_models(replace(RANGES, variety=VARIETY), 16)
    assert [replace(model, variety=()) for model in models] == draw_models(RANGES, 16)
    assert [bool(model.variety) for model in models] == [(index + 1) % 4 == 0 for index in range(16)]
    calls = [request.call for request in space_filling(models[:4], 1)]
    assert calls[-len(models[3].variety) :] == list(models[3].variety)


def test_varieties_stay_in_their_box() -> None:
    calls = [
        call for model in draw_models(replace(RANGES, variety={**VARIETY, "every": 1}), 32) for call in model.variety
    ]
    mixtures = [call for call in calls if isinstance(call, MoELayer)]
    assert {call.experts for call in mixtures} == {8, 16, 32, 64, 128, 256}
    assert {call.topk for call in mixtures} == set(range(1, 9))
    assert {call.distribution for call in mixtures} == {"balanced", "power_law_1.2"}
    assert {call.compiled for call in mixtures} == {False, True}
    attentions = [call for call in calls if isinstance(call, Attention)]
    assert {call.head_dim for call in attentions if not call.value_dim} == {64, 128, 256}
    assert {(call.head_dim, call.value_dim) for call in attentions if call.value_dim} == {(192, 128)}
    assert {call.kernel for call in attentions} == {"", "flash", "math"}
    assert any(0 < call.window < call.seq_len for call in attentions)


def test_a_compiled_layer_has_no_halves_to_time() -> None:
    for request in space_filling(draw_models(replace(RANGES, variety=VARIETY), 4), 1):
        if request.call.fields().get("compiled"):
            assert request.phases == ("forward", "backward", "backward_accumulate")


def test_visits_of_one_call_lie_a_round_of_all_calls_apart() -> None:
    other = replace(GEMM, m=16)
    requests = [Request(call=call, phases=("forward",)) for call in (GEMM, other)]
    order = [request.call for request in missing(requests, [SAMPLE], 2, visits=3)]
    assert order == [other, GEMM, other, GEMM, other]


@pytest.mark.parametrize("other", [replace(SAMPLE, quarantine="noisy"), replace(SAMPLE, busy_ranks=1)])
def test_a_quarantined_row_or_one_of_another_layout_answers_nothing(other: Sample) -> None:
    request = Request(call=GEMM, phases=("forward",))
    assert missing([request], [other], 2, visits=1) == [request]


def test_a_calls_file_comes_back_as_it_went_out(tmp_path: Path) -> None:
    requests = {1: [Request(call=GEMM, phases=("forward",))], 2: [Request(call=GEMM, phases=("backward",))]}
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(calls_file_content(requests, "abacus")))
    assert read_calls_file(path, "abacus") == requests


def test_calls_of_other_hardware_are_refused_with_both_names(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(calls_file_content({1: [Request(call=GEMM, phases=("forward",))]}, "abacus")))
    with pytest.raises(ConfigError, match=r"calls\.json: hardware: .*'abacus'.*'slide rule'.*--hardware"):
        read_calls_file(path, "slide rule")


ENTRY = {"ranks_per_node": 1, "call": "gemm", "fields": GEMM.fields(), "phases": ["forward"]}


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {},
        {key: value for key, value in ENTRY.items() if key != "fields"},
        ENTRY | {"fields": 3},
        ENTRY | {"fields": {"dtype": "fp32", "m": "many", "n": 1, "k": 1}},
        ENTRY | {"call": "gem"},
        ENTRY | {"call": ["gemm"]},
        ENTRY | {"phases": ["sideways"]},
        ENTRY | {"phases": 3},
        ENTRY | {"ranks_per_node": "two"},
        ENTRY | {"ranks_per_node": 0},
    ],
)
def test_an_entry_that_is_no_call_is_named_by_its_place(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps({"version": 2, "hardware": "abacus", "calls": [ENTRY, entry]}))
    with pytest.raises(ConfigError, match=r"(?s)calls\.json: calls\[1\][.:].*predict calls"):
        read_calls_file(path, "abacus")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 0}', b'{"version": 2}', b'{"version": 2, "calls": 3}', b"\xff\xfe"],
)
def test_a_damaged_calls_file_names_itself_and_the_command_that_writes_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calls.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"calls\.json.*predict calls"):
        read_calls_file(path, "abacus")


def test_a_missing_calls_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_calls_file(tmp_path / "none.json", "abacus")
