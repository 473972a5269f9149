"""FLOPs of a phase and its MFU by convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from predict.ledger.conventions.verl import verl
from predict.ledger.conventions.verl_peaks import verl_peak_flops_per_us
from predict.rl.phase import PhaseMfu
from predict.run.model_flops import model_flops_per_step
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, UserError
from sampling.hardware.cluster import Gpu

FORWARD_SHARE = 1 / 3
"""A forward pass in a convention that counts forward and backward: verl divides by 3 (verl/workers/engine_workers.py)."""


def mfu_of_phase(
    run: TrainingRun, time_us: float, *, gpus: int, passes: float = 1.0, forward_only: bool = False
) -> dict[str, PhaseMfu]:
    """The figures of `passes` passes over the sequences of a run, in `time_us` on so many GPUs."""
    share = passes * (FORWARD_SHARE if forward_only else 1.0)
    by_convention: Mapping[str, tuple[Callable[[], float], Callable[[Gpu], float]]] = {
        "palm": (lambda: model_flops_per_step(run), lambda gpu: gpu.peak_flops_per_us(run.precision)),
        "verl": (lambda: _verl(run), verl_peak_flops_per_us),
    }
    return {name: _figure(run, time_us, gpus, share, *of) for name, of in by_convention.items()}


def _verl(run: TrainingRun) -> float:
    return sum(count * verl(run.model_keys, [length]) for length, count in run.sequences.items())


def _figure(
    run: TrainingRun,
    time_us: float,
    gpus: int,
    share: float,
    flops_of: Callable[[], float],
    peak_of: Callable[[Gpu], float],
) -> PhaseMfu:
    flops = None
    try:
        flops = share * flops_of()
        peak = peak_of(run.cluster.gpu) * gpus
    except (ConfigError, UserError):
        return PhaseMfu(flops=flops, mfu=None)  # the convention does not know the model, or the device
    return PhaseMfu(flops=flops, mfu=flops / (peak * time_us) if time_us else None)
