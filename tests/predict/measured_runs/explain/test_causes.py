"""The first cause of made GPU traces into which a fault was edited, and controls that accuse nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from predict.measured_runs.explain.causes import slow_ranks
from predict.measured_runs.explain.explanation import Explanation, explain
from predict.measured_runs.explain.measured import MeasuredRank, TracedStep
from predict.measured_runs.explain.naming import name_of_kernel
from predict.measured_runs.explain.predicted import PredictedStep
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.replay.replay import replayed
from sampling.errors import UserError
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Gelu
from tests.predict.measured_runs.explain.made_device_traces import (
    Events,
    awaiting,
    device_step,
    is_compute,
    is_message,
    on_stream,
    paused,
    prediction,
    slowed,
)
from tests.predict.measured_runs.explain.made_traces import event, write

PAUSE_US = 40_000.0


def attention(each: dict[str, object]) -> bool:
    return is_compute(each) and each["name"] == "attention"


def slow_rank(step: Events) -> list[Events]:
    slow = slowed(step, is_compute, 1.6)
    late_us = max(each["ts"] + each["dur"] for each in slow if is_compute(each)) - max(
        each["ts"] + each["dur"] for each in step if is_compute(each)
    )
    return [slow, awaiting(step, late_us)]


def loading(step: Events) -> Events:
    at = next(each["ts"] for each in step if is_compute(each)) + 1.0
    waited = paused(step, PAUSE_US)
    pause = next(each for each in waited if is_compute(each) and each["ts"] > at + PAUSE_US)
    return [*waited, event("enumerate(DataLoader)#1", 0.0, pause["ts"] + 3 * PAUSE_US, "user_annotation")]


CASES: dict[str, tuple[Callable[[Events], list[Events]], str]] = {
    "none": (lambda step: [step, step], "none"),
    "even small gaps": (lambda step: [paused(step, 300.0, launched_late=True)] * 2, "none"),
    "delayed collective": (lambda step: [slowed(step, is_message, 2.0)] * 2, "communication"),
    "slow attention": (lambda step: [slowed(step, attention, 3.0)] * 2, "attention"),
    "host gap": (lambda step: [paused(step, PAUSE_US, launched_late=True)] * 2, "host"),
    "standstill": (lambda step: [paused(step, PAUSE_US), awaiting(step, PAUSE_US)], "standstill"),
    "slow rank": (slow_rank, "slow_rank"),
    "all 1.5 times": (lambda step: [slowed(step, is_compute, 1.5)] * 2, "slow_compute"),
    "data loader": (lambda step: [loading(step)] * 2, "data"),
    "one rank": (lambda step: [slowed(step, is_message, 2.0)], "messages"),
}


@pytest.mark.parametrize(("edit", "cause"), CASES.values(), ids=CASES)
def test_the_first_cause_on_gpus_is_the_fault_that_was_edited_in(
    tmp_path: Path, edit: Callable[[Events], list[Events]], cause: str
) -> None:
    found = explain(prediction().run, trace=write(tmp_path, edit(device_step())))
    assert found.verdict[0].cause == cause, [each.text for each in found.verdict]
    named = sum(term.measured_us for term in found.terms)
    assert named + found.unexplained_us == pytest.approx(found.measured.step_us)
    if cause == "none":
        assert {each.cause for each in found.verdict} <= {"none", "largest_row"}
        assert not any(each.cost_us for each in found.verdict)


def explained(tmp_path: Path, edit: Callable[[Events], list[Events]]) -> Explanation:
    return explain(prediction().run, trace=write(tmp_path, edit(device_step())))


def test_sentences_speak_of_the_device_and_tell_bandwidth(tmp_path: Path) -> None:
    slow = explained(tmp_path / "slow", CASES["all 1.5 times"][0]).verdict[0].text
    assert "power or thermal limit" in slow and "threads" not in slow
    link = explained(tmp_path / "link", CASES["delayed collective"][0]).verdict[0].text
    assert "50.0 % of the assumed speed" in link and "GB/s per rank" in link
    alone = explained(tmp_path / "alone", CASES["one rank"][0])
    assert "at least 50.0 % of the assumed speed" in alone.verdict[0].text


def test_a_trace_without_products_is_refused(tmp_path: Path) -> None:
    bare = [each for each in device_step() if each["cat"] != "cpu_op" and each["name"] != "gemm"]
    with pytest.raises(UserError, match="shows no matrix product"):
        explain(prediction().run, trace=write(tmp_path, [bare, bare]))


def test_a_trace_of_another_plan_is_refused(tmp_path: Path) -> None:
    sent = [on_stream(event("ncclDevKernel_SendRecv", 1000.0, 5.0, "kernel"), 20), *device_step()]
    with pytest.raises(UserError, match=r"holds sends between ranks, which plan\.pp = 1 does not have"):
        explain(prediction().run, trace=write(tmp_path, [sent, sent]))


def test_a_trace_without_shapes_is_recognised_by_names(tmp_path: Path) -> None:
    known = explained(tmp_path / "known", lambda step: [slowed(step, attention, 3.0)] * 2)
    bare = explained(tmp_path / "bare", lambda step: [without_dims(slowed(step, attention, 3.0))] * 2)
    assert not bare.calls and bare.measured.headings == pytest.approx(known.measured.headings)
    assert [each.cause for each in bare.verdict] == [*(each.cause for each in known.verdict), "no_shapes"]
    slow = explained(tmp_path / "slow", lambda step: [without_dims(each) for each in slow_rank(step)])
    assert slow.verdict[0].cause == "slow_rank"


def without_dims(step: Events) -> Events:
    return [each | {"args": {k: v for k, v in each["args"].items() if k != "Input Dims"}} for each in step]


def test_kernels_that_no_operator_launched_are_recognised_by_their_names(tmp_path: Path) -> None:
    """As of a replayed CUDA graph, or of libraries that call no operator of torch."""
    known = explained(tmp_path / "known", lambda step: [step] * 2)
    graph = explained(
        tmp_path / "graph", lambda step: [[named_kernel(each) for each in step if each["cat"] != "cpu_op"]] * 2
    )
    assert graph.measured.headings == pytest.approx(known.measured.headings)
    assert graph.unexplained_us == 0.0


def named_kernel(each: dict[str, Any]) -> dict[str, Any]:
    names = {
        "gemm": "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
        "attention": "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
    }
    return each | {"name": names.get(each["name"], each["name"])} if is_compute(each) else each


@pytest.mark.parametrize(
    ("kernel", "heading"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1", "gemm"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_4_128x128x128_1x1x1", "attention"),
        ("void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<Kernel_traits<...>>", "rms_norm"),
        ("void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>", "rope"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>>", "optimizer"),
        ("triton_poi_fused_mul_silu_3", "swiglu"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1", "rms_norm"),
        ("_permute_kernel", "permute"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", None),
    ],
)  # fmt: skip
def test_names_of_kernels(kernel: str, heading: str | None) -> None:
    found = name_of_kernel(kernel)
    assert (found.heading if found else None) == heading


def test_a_replay_on_gpus_keeps_what_the_trace_shows(tmp_path: Path) -> None:
    run = prediction().run
    step = slowed(device_step(), attention, 3.0)
    measured = read_measured(write(tmp_path, [paused(step, PAUSE_US, launched_late=True)] * 2), run)
    own, without_gaps, faster = (
        replayed(run, run, measured, kernels=of) for of in ({}, {"host": 0.01}, {"attention": 0.5})
    )
    assert own.median_us == pytest.approx(measured.step_us)
    (launches_us,) = (term.time_us for term in own.terms if term.name == "step_overhead")
    assert own.median_us - without_gaps.median_us == pytest.approx(0.99 * (PAUSE_US - launches_us), rel=0.1)
    assert own.median_us - faster.median_us == pytest.approx(measured.headings["attention"] / 2, rel=0.1)


# Causes in compute: ranks held against one another.

GEMM, GELU = Gemm(dtype="fp32", m=8, n=8, k=8), Gelu(dtype="fp32", tokens=8, width=8)


def rank(number: int, *, forward_us: float, backward_us: float, gelu_us: float = 10.0) -> MeasuredRank:
    """A rank that runs a product twice and a pass once; a trace counts the runs of forwards alone."""
    return MeasuredRank(
        rank=number,
        steps=1,
        step_us=1000.0,
        headings={"gemm": forward_us + backward_us, "gelu": gelu_us},
        kernels_us=forward_us + backward_us + gelu_us,
        matched_us=forward_us + backward_us + gelu_us,
        calls={
            (GEMM, "forward"): (2.0, forward_us),
            (GEMM, "backward"): (0.0, backward_us),
            (GELU, "forward"): (1.0, gelu_us),
        },
        operators={},
        messages={},
        longest_idle_us=0.0,
    )


@pytest.mark.parametrize(
    ("forward_us", "backward_us", "gelu_us", "explained"),
    [
        (100.0, 600.0, 10.0, []),
        (300.0, 400.0, 10.0, []),  # a forward that took longer, a backward that made up for it
        (100.0, 600.0, 500.0, []),  # one short call that was held up, beside the many that were not
        (200.0, 1200.0, 20.0, [pytest.approx(710.0)]),
    ],
)
def test_a_rank_is_slow_where_its_forwards_and_backwards_together_are(
    forward_us: float, backward_us: float, gelu_us: float, explained: list[float]
) -> None:
    measured = TracedStep(
        ranks=(
            rank(0, forward_us=100.0, backward_us=600.0),
            rank(1, forward_us=forward_us, backward_us=backward_us, gelu_us=gelu_us),
        ),
        rule="",
        on_device=False,
    )
    predicted = PredictedStep(step_us=1000.0, headings={}, calls={}, messages_us={}, deviations_log={})
    assert [finding.cost_us for finding in slow_ranks(predicted, measured)] == explained
