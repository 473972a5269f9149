"""The ledger of a step: five books that each add up to the estimate, and MFU by convention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from predict import estimate, load
from predict.config.document import Config
from predict.layers.adapters import frozen_parameters, trained_parameters
from predict.ledger.communication import CommunicationBook, communication_book
from predict.ledger.compute import ComputeBook, StepItem, compute_book, step_items
from predict.ledger.constants_in_use import constants_in_use
from predict.ledger.conventions import megatron_of, palm_of, without_encoder
from predict.ledger.peak_shares import PeakShare, peak_shares
from predict.ledger.schedule import ScheduleBook, schedule_book
from predict.ledger.verl_flops import verl, verl_peak_flops_per_us
from predict.memory.estimate import MemoryEstimate
from predict.prices.published_constants import PublishedConstant
from predict.run.model_flops import PALM_NO_LOOKUP, model_flops_per_step
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from regressors.bank.times import shares_of
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
        "palm": lambda: _over_sequences(run, lambda length: palm_of(without_encoder(run.model, "PaLM"), [length])),
        PALM_NO_LOOKUP: lambda: model_flops_per_step(run),
        "megatron": lambda: _over_sequences(
            run, lambda length: megatron_of(without_encoder(run.model, "Megatron"), [length])
        ),
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


SOURCES = ("measured", "extrapolated", "transferred", "analytic", "assumed")
"""The sources of a time (`regressors.bank.times.Source`); `assumed` are the host's launches and overheads that a run states."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationBook:
    """Times by source on the mean pipeline rank in µs, half-widths of unknowns, and constants by name."""

    by_source_us: Mapping[str, float]
    """Time of a step's calls and overheads, waiting aside."""
    unknowns: Mapping[str, float]
    """Causes of the interval's width: half-widths in log time at 90 %, widest first."""
    constants: Mapping[str, PublishedConstant]
    """Constants read off published runs that this step's times or interval depend on."""
    samples: str
    """The profile whose samples the times rest on; empty where none do."""
    calibrated: Mapping[str, float]
    """Terms that a calibration file multiplies; none without one."""

    @property
    def shares(self) -> dict[str, float]:
        return shares_of(self.by_source_us)


def calibration_book(prediction: Prediction, items: Iterable[StepItem], overheads_us: float) -> CalibrationBook:
    """The book of a step by its items; `overheads_us` are stragglers and the step's stated overhead."""
    by_source_us = dict.fromkeys(SOURCES, 0.0)
    items = tuple(items)
    for each in items:
        by_source_us[each.item.source or "assumed"] += each.time_us
    by_source_us["assumed"] += overheads_us
    samples = prediction.provenance["samples"]
    return CalibrationBook(
        by_source_us=by_source_us,
        unknowns=prediction.unknowns,
        constants=constants_in_use(prediction, items),
        samples="" if samples is None or prediction.is_analytic else samples["provenance"]["profile"],
        calibrated=prediction.provenance["calibration"] or {},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """The books of one predicted step."""

    prediction: Prediction
    compute: ComputeBook
    peak_shares: tuple[PeakShare, ...]
    memory: MemoryEstimate
    communication: CommunicationBook
    schedule: ScheduleBook
    calibration: CalibrationBook
    mfu: Mapping[str, ConventionMfu]

    @property
    def account_us(self) -> dict[str, float]:
        """The step time on the mean pipeline rank, from the books' own sums."""
        return {
            "compute": self.compute.total_us,
            "communication": self.communication.exposed_us,
            "bubble": self.schedule.bubble_us,
            "stragglers": self.schedule.stragglers_us,
            "step_overhead": self.schedule.overhead_us,
        }

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters that the run holds, those of a vision tower or an encoder and adapters among them; that one token of the text, or of
        the decoder, meets; of the tower or encoder alone, 0 without one; and those that are trained. Without multi-token prediction."""
        run = self.prediction.run
        trained = trained_parameters(run)
        return {
            "total": trained + frozen_parameters(run),
            "active": run.model.active_parameters,
            "tower": run.tower.model.parameters if run.tower else 0,
            "trained": trained,
        }


def step_ledger(config: Config, overrides: Sequence[str] = ()) -> Ledger:
    """The five books of a config's step, and its MFU by convention: `.account_us`, `.compute`, `.mfu`.

    ConfigError lists every fault of the config; SamplesError is for damaged regressors.
    """
    return ledger_of(estimate(load(config, overrides), require_fit=False))


def ledger_of(prediction: Prediction) -> Ledger:
    """The books of a prediction. ConfigError for a model with layers that no convention counts."""
    run = prediction.run
    items = step_items(prediction)
    compute = compute_book(run, prediction.calls, items)
    schedule = schedule_book(prediction, items)
    return Ledger(
        prediction=prediction,
        compute=compute,
        peak_shares=peak_shares(run, compute.operators),
        memory=prediction.memory,
        communication=communication_book(run, items),
        schedule=schedule,
        calibration=calibration_book(prediction, items, schedule.stragglers_us + schedule.overhead_us),
        mfu=mfu_by_convention(prediction, compute),
    )
