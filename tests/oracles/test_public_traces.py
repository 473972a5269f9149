"""Public traces of other projects' runs (HolisticTraceAnalysis' samples, where they are at hand): their ledgers close."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict import load
from predict.measured_runs.explain.read_traces import read_measured
from predict.run.training_run import TrainingRun
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
