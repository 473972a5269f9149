"""The ledger of a step: five books, each of which adds up to the estimate, and MFU by convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.ledger.calibration import CalibrationBook, calibration_book
from predict.ledger.communication import CommunicationBook, communication_book
from predict.ledger.compute import ComputeBook, compute_book
from predict.ledger.conventions.mfu import ConventionMfu, mfu_by_convention
from predict.ledger.memory import MemoryBook
from predict.ledger.schedule import ScheduleBook, schedule_book
from predict.ledger.work import step_items
from predict.step.prediction import Prediction


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
