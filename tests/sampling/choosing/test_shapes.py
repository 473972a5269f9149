"""Shapes that a session draws, and the rows of them that it still lacks."""

from dataclasses import replace

import pytest

from sampling.call import Request
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.choosing.ranges import VariantRanges
from sampling.choosing.shapes import draw_models
from sampling.choosing.tasks import missing, requests_of_models
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.store.sample import Sample
from tests.made_rows import row, small_ranges

RANGES = small_ranges(
    tokens=(64, 1024),
    seq_len=(32, 512),
    hidden=(128, 768),
    head_dims=(32, 64),
    ffn_ratio=(2.0, 4.0),
    vocab=(2048, 16384),
)
GEMM = Gemm(dtype="fp32", m=8, n=16, k=32)
SAMPLE = row(GEMM, busy_ranks=2)


def test_draws_are_the_same_every_time_and_a_longer_draw_begins_with_the_shorter() -> None:
    assert draw_models(RANGES, 5) == draw_models(RANGES, 64)[:5]


def test_draws_stay_in_the_box_and_can_be_split_over_two_ranks() -> None:
    for model in draw_models(RANGES, 64):
        layer = model.layer
        assert layer.heads % 2 == layer.kv_heads % 2 == layer.heads % layer.kv_heads == 0
        assert 128 <= layer.hidden <= 768
        assert 2048 <= model.vocab <= 16384
        assert layer.batch * layer.seq_len <= 1.5 * 1024


def test_cells_come_with_their_operators_for_every_second_model() -> None:
    names = [request.call.NAME for request in requests_of_models(draw_models(RANGES, 2), 1)]
    assert names.count("dense_layer") == names.count("output_head") == 2
    second = names[names.index("gemm") :]
    assert "gemm" not in second[second.index("dense_layer") :]


def test_cells_that_span_ranks_are_asked_for_on_two_ranks_only() -> None:
    models = draw_models(RANGES, 1)
    alone, together = ({request.call.group_size for request in requests_of_models(models, ranks)} for ranks in (1, 2))
    assert alone == {1}
    assert together == {1, 2}


def test_backwards_that_span_ranks_are_not_split() -> None:
    for request in requests_of_models(draw_models(RANGES, 1), 2):
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


VARIANTS = VariantRanges(
    every=4,
    experts=(8, 256),
    topk=(1, 8),
    skews=(0, 1.2),
    windows=(256, 4096),
    head_dims=(64, 128, 256),
    kernels=("flash", "math"),
    dtypes=("fp8",),
    compiled=True,
)


def test_variants_leave_the_models_as_they_are_and_come_after_them() -> None:
    models = draw_models(replace(RANGES, variants=VARIANTS), 16)
    assert [replace(model, variants=()) for model in models] == draw_models(RANGES, 16)
    assert [bool(model.variants) for model in models] == [(index + 1) % 4 == 0 for index in range(16)]
    calls = [request.call for request in requests_of_models(models[:4], 1)]
    assert calls[-len(models[3].variants) :] == list(models[3].variants)


def test_variants_stay_in_their_box() -> None:
    calls = [
        call
        for model in draw_models(replace(RANGES, variants=replace(VARIANTS, every=1)), 32)
        for call in model.variants
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
    for request in requests_of_models(draw_models(replace(RANGES, variants=VARIANTS), 4), 1):
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
