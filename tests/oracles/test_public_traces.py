"""Public traces and logs of other projects' runs, where they are at hand: ledgers close, sums are those of an independent count, and steps
are the logs' own."""

import gzip
import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from predict import infer_config, load
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.logs import read_log
from predict.measured_runs.steady_state import RunLog, steady
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.importers.torch_trace.events import load_trace
from tests.oracles.shared import SHARED

TRACES = sorted((SHARED / "data" / "traces").glob("**/*.json.gz"))


def run_of_trace(path: Path) -> TrainingRun:
    """A run on as many ranks as the trace has, on GPUs if it holds kernels of one; its model is not the traced one."""
    trace = load_trace(path, with_shapes=False)
    ranks = max(trace.world_size or 1, 1 + (trace.rank or 0))
    sizes = [
        "plan.tp=1",
        "plan.pp=1",
        "plan.cp=1",
        "plan.schedule=1f1b",
        "plan.zero=0",
        f"plan.dp={ranks}",
        f"batch.global={ranks}",
        "batch.micro=1",
    ]
    on_gpus = [
        f"cluster.nodes={ranks}",
        "cluster.gpus_per_node=1",
        "cluster.profile=analytic",
        "plan.vpp=1",
        "plan.sp=false",
    ]
    on_cpu = [f"cluster={{hardware: cpu, nodes: {ranks}, gpus_per_node: 1}}"]
    if trace.kernels:
        return load("configs/runs/llama3-70b-64xh100.yml", [*sizes, *on_gpus])
    return load("configs/runs/demo.yml", [*sizes, *on_cpu])


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_the_ledger_of_a_public_trace_closes(trace: Path) -> None:
    measured = read_measured(trace, run_of_trace(trace))
    assert measured.step_us > 0
    assert sum(measured.headings.values()) == pytest.approx(measured.step_us)
    assert all(time_us >= -1e-6 * measured.step_us for time_us in measured.headings.values())


def kernels_in(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file)["traceEvents"]
    return [
        each for each in events if each.get("ph") == "X" and each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]


def union_us(events: list[dict[str, Any]]) -> float:
    """Time that at least one event covers, by sweeping over their starts and ends."""
    marks = sorted(
        [(each["ts"], 1) for each in events] + [(each["ts"] + each["dur"], -1) for each in events],
        key=lambda mark: (mark[0], -mark[1]),
    )
    busy = 0.0
    running = 0
    since = 0.0
    for at, change in marks:
        if running == 0 and change == 1:
            since = at
        running += change
        if running == 0:
            busy += at - since
    return busy


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_busy_idle_and_classes_are_those_of_an_independent_sum(path: Path) -> None:
    found = infer_config(path).measured
    assert isinstance(found, tuple)
    (rank,) = found
    events = kernels_in(path)
    work = [each for each in events if each["cat"] == "kernel"]
    span_us = max(each["ts"] + each["dur"] for each in work) - min(each["ts"] for each in work)
    assert rank.busy_us == pytest.approx(union_us(work), rel=0.01)
    assert rank.idle_us == pytest.approx(span_us - union_us(work), rel=0.01, abs=1)
    assert sum(rank.by_class.values()) == pytest.approx(sum(each["dur"] for each in events), rel=0.01)
    assert rank.classified_share >= 0.98


INFERRED = {
    "b200/eager_trace.json.gz": ("gpt-oss-120b", "b200", 8),
    "inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz": ("qwen3-8b", "mi300x", 1),
    "inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz": ("qwen3-8b", "mi300x", 1),
}


@pytest.mark.parametrize(("name", "expected"), INFERRED.items())
def test_model_device_and_plan_are_inferred(name: str, expected: tuple[str, str, int]) -> None:
    """The decode is one replayed graph, whose shapes stand in the trace of its capture."""
    path = SHARED / "data" / "traces" / "tracelens" / name
    if not path.is_file():
        pytest.skip("the public traces are not at hand")
    found = infer_config(path)
    placement = found.document["placement"]
    assert isinstance(placement, dict)
    assert (found.document["model"], found.document["hardware"], placement["tp"]) == expected
    assert isinstance(found.measured, tuple)
    assert found.measured[0].launch_bound == (name == "b200/eager_trace.json.gz")


LOGS = {
    "mlperf_v5.1/llama31_405b_512xGB200_nvfp4_tp4pp8cp2.txt.gz": 17.26,
    "mlperf_v5.1/llama31_8b_32xB200_fp8_cp2.txt.gz": 0.1876,
    "mlperf_v5.1/llama31_8b_64xH200_fp8_cp2.txt.gz": 0.3533,
    "mlperf_v5.1/llama31_8b_8xMI355X.txt.gz": 1.043,
    "mlperf_v5.1/llama2_70b_lora_72xGB200_cp8.txt.gz": 0.1999,
    "modded-nanogpt/track_1_short_2024-10-20_ScaleUp1B.log.gz": 1.71966,
    "modded-nanogpt/track_2_medium_2025-12-31_BulkSmallTrackTransfer.log.gz": 0.21964,
    "modded-nanogpt/track_3_optimization_results.log.gz": 0.14813,
}
"""Log → seconds of a step as it states them, over the whole run."""


@pytest.mark.parametrize(("name", "step_s"), LOGS.items())
def test_steps_are_the_logs_own(name: str, step_s: float) -> None:
    path = SHARED / "data" / "traces" / name
    if not path.is_file():
        pytest.skip("the public logs are not at hand")
    log = read_log(path)
    assert mean_us(log) == pytest.approx(1e6 * step_s, rel=0.01)
    if "track_2" not in name:  # whose batch grows
        assert median(each.time_us or 0 for each in steady(log.steps)) == pytest.approx(1e6 * step_s, rel=0.01)


def mean_us(log: RunLog) -> float:
    return fmean(each.time_us or 0 for each in log.steps)


def test_llm_c_states_no_times() -> None:
    folder = SHARED / "data" / "traces" / "modded-nanogpt"
    for path in (*folder.glob("*AdamW*"), *folder.glob("*llmc*")):
        with pytest.raises(UserError, match=r"llm\.c's, and state losses without times"):
            read_log(path)
