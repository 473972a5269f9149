"""Whether a trace is of the run that it is held against: by its ranks, its device, and the shapes of its matrix products."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from predict.run.training_run import TrainingRun
from sampling.call import Call
from sampling.errors import UserError
from sampling.importers.torch_trace.events import Trace
from sampling.operators.gemm import Gemm

LEAST_FOUND = 0.1
"""Share of the time of a trace's matrix products below which shapes that are predicted, too, are a coincidence: frameworks cut some
products otherwise than the prediction has them, but never nearly all."""
CallTimes = Mapping[tuple[Call, str], float]


def pipeline_rank(rank: int, run: TrainingRun) -> int:
    """The pipeline rank of a global rank, as frameworks number them: those of one pipeline rank in a row."""
    return rank * run.plan.pp // run.cluster.world_size


def require_of_run(trace: Trace, rank: int, run: TrainingRun, file: Path) -> None:
    """UserError that tells every way in which a trace's ranks and device are not those of the run."""
    if faults := [*_misfits(trace, rank, run)]:
        raise UserError(f"--trace: {file}: not of {run.name}: {'; '.join(faults)}; give the config of the traced run")


def _misfits(trace: Trace, rank: int, run: TrainingRun) -> Iterator[str]:
    ranks = run.cluster.world_size
    if "distributedInfo" in trace.header and trace.world_size != ranks:
        yield f"it is of a run of world size {trace.world_size}, the config of {ranks}"
    elif rank >= ranks:
        yield f"it is of rank {rank}, the config's ranks end at {ranks - 1}"
    on_cpu = run.cluster.gpu.kind == "cpu"
    if trace.kernels and on_cpu:
        yield "it holds kernels of a GPU, the config is of a CPU"
    elif trace.ops and not (trace.kernels or on_cpu):
        yield f"it holds no kernels of a GPU, the config is of {run.cluster.gpu.name}"


def require_same_products(run: TrainingRun, predicted: Collection[tuple[Call, str]], measured: CallTimes) -> None:
    """UserError where hardly any of a trace's matrix products has a shape that the prediction has; without products nothing is known."""
    times_us = {key: time_us for key, time_us in measured.items() if isinstance(key[0], Gemm)}
    whole_us = sum(times_us.values())
    found_us = sum(time_us for key, time_us in times_us.items() if key in predicted)
    if found_us < LEAST_FOUND * whole_us:
        raise UserError(
            f"--trace: not of {run.name}: {found_us / whole_us:.0%} of the time of its matrix products is of shapes that the config has; give "
            "the config of the traced run, with its model, batch and plan"
        )
