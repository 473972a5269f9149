"""Model FLOPs utilisation of a step by each convention, side by side; what a convention does not know it refuses by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from predict.ledger.compute import ComputeBook
from predict.ledger.conventions.megatron import megatron_of
from predict.ledger.conventions.palm import palm_of
from predict.ledger.conventions.verl import verl, verl_peak_flops_per_us
from predict.run.model_flops import PALM_NO_LOOKUP, model_flops_per_step
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import ConfigError, UserError

CONVENTIONS = ("palm", PALM_NO_LOOKUP, "megatron", "verl", "exact", "hfu")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConventionMfu:
    """The FLOPs of a step by one convention, and their share of the machine's peak."""

    convention: str
    flops: float | None
    """None where the convention does not know the model."""
    peak_flops_per_us: float | None
    """Peak of all GPUs that it divides by; None where it does not know the device."""
    mfu: float | None
    refusal: str = ""
    """Why there is no figure."""


def mfu_by_convention(prediction: Prediction, book: ComputeBook) -> dict[str, ConventionMfu]:
    run = prediction.run
    flops: dict[str, Callable[[], float]] = {
        "palm": lambda: _over_sequences(run, lambda length: palm_of(run.model, [length])),
        PALM_NO_LOOKUP: lambda: model_flops_per_step(run),
        "megatron": lambda: _over_sequences(run, lambda length: megatron_of(run.model, [length])),
        "verl": lambda: _verl(run),
        "exact": lambda: book.required_flops,
        "hfu": lambda: book.required_flops + book.recompute_flops,
    }
    return {name: _figure(prediction, name, flops[name]) for name in CONVENTIONS}


def _over_sequences(run: TrainingRun, of_one: Callable[[int], float]) -> float:
    """Every convention adds up sequences one by one."""
    return sum(count * of_one(length) for length, count in run.sequences.items())


def _verl(run: TrainingRun) -> float:
    if not run.model_keys:
        raise ConfigError("model: the run has no config.json, whose keys verl reads")
    return _over_sequences(run, lambda length: verl(run.model_keys, [length]))


def _figure(prediction: Prediction, name: str, flops_of: Callable[[], float]) -> ConventionMfu:
    run = prediction.run
    flops = peak = None
    try:
        flops = flops_of()
        of_gpu = verl_peak_flops_per_us if name == "verl" else _peak_of(run)
        peak = of_gpu(run.cluster.gpu) * run.cluster.world_size
    except (ConfigError, UserError) as error:
        return ConventionMfu(convention=name, flops=flops, peak_flops_per_us=peak, mfu=None, refusal=str(error))
    return ConventionMfu(
        convention=name, flops=flops, peak_flops_per_us=peak, mfu=flops / (peak * prediction.median_us)
    )


def _peak_of(run: TrainingRun) -> Callable[..., float]:
    """The dense peak of the run's precision."""
    return lambda gpu: float(gpu.peak_flops_per_us(run.precision))
