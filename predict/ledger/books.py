"""The ledger of a step: five books, each of which adds up to the estimate, and MFU by convention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from predict.ledger.communication import CommunicationBook, communication_book
from predict.ledger.compute import ComputeBook, compute_book
from predict.ledger.constants_in_use import constants_in_use
from predict.ledger.conventions.mfu import ConventionMfu, mfu_by_convention
from predict.ledger.schedule import ScheduleBook, schedule_book
from predict.ledger.work import StepItem, step_items
from predict.memory.estimate import MemoryEstimate
from predict.memory.rank_memory import TERMS
from predict.prices.published_constants import PublishedConstant
from predict.step.prediction import Prediction

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
        total_us = sum(self.by_source_us.values())
        return {source: time_us / total_us for source, time_us in self.by_source_us.items()}


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
class MemoryBook:
    """The memory of every pipeline rank; the worst decides."""

    estimate: MemoryEstimate

    @property
    def terms_bytes(self) -> dict[str, float]:
        """Bytes of the worst rank's peak by term."""
        return {term: getattr(self.estimate.worst, term) for term in TERMS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """The books of one predicted step."""

    prediction: Prediction
    compute: ComputeBook
    memory: MemoryBook
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
        """Trainable parameters, and those that one token meets; without multi-token prediction."""
        model = self.prediction.run.model
        return {"total": model.parameters, "active": model.active_parameters}


def ledger_of(prediction: Prediction) -> Ledger:
    """The books of a prediction. ConfigError for a model with layers that no convention counts."""
    run = prediction.run
    items = step_items(prediction)
    compute = compute_book(run, prediction.calls, items)
    schedule = schedule_book(prediction, items)
    return Ledger(
        prediction=prediction,
        compute=compute,
        memory=MemoryBook(estimate=prediction.memory),
        communication=communication_book(run, items),
        schedule=schedule,
        calibration=calibration_book(prediction, items, schedule.stragglers_us + schedule.overhead_us),
        mfu=mfu_by_convention(prediction, compute),
    )
