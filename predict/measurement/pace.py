"""The pace of this machine beside a measured step, as a share of the pace of its profile's rows, and what it makes of the error.

A step that takes longer than predicted may run on a machine that is slower now than when its rows were taken. The reference calls of
its sessions, timed again beside the step, part the error into that of the pace and that of the models.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from predict import estimate
from predict.layers.run_json import dump_run
from predict.measurement.requirements import require_measurable
from predict.measurement.system_noise import MOST_WAITED
from predict.measurement.worker import run_in_processes
from predict.prices.open import open_prices
from predict.prices.pace import disturbance_beside, paces_beside, paces_shown, paces_text, reference_us_of
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import SamplesError, UserError
from sampling.files.places import fitting_command, sampling_command
from sampling.number_text import multiple, signed_percent, significant
from sampling.store.pace import RESOURCES, Resource
from sampling.store.pace_log import References

LEAST_DISTURBANCE = 1.02
"""Time of a step over its usual time from which on other work is worth a word: readings of a minute know their mean to about this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """The pace of the machine at a moment: 0.83 where it takes 1 / 0.83 of the time that it took at the pace of its rows."""

    by_resource: Mapping[Resource, float]
    of_step: float
    """The pace of a run's step, which takes some of each resource."""
    disturbance: float = 1.0
    """The time of a step over the time at this pace that the rows count with, as other work disturbs the reference calls."""
    shown: Mapping[Resource, float] = field(default_factory=dict)
    """The paces of the reference calls themselves, which calls may follow in part."""

    @property
    def slowdown(self) -> float:
        """The time of a step over the time that a prediction from the rows gives it, by the pace and by what other work adds."""
        return self.disturbance / self.of_step

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        disturbed = self.disturbance > LEAST_DISTURBANCE
        others = f"; other work makes a step {multiple(self.disturbance)} as long" if disturbed else ""
        return f"this machine now runs at {significant(self.of_step)} of the pace of its rows ({paces_text(self.by_resource)}){others}"

    def parts_of(self, error: float) -> str:
        """The error of a prediction at the pace of the rows, parted into pace, other work and models."""
        parts = [self.of_step - 1, 1 / self.disturbance - 1, self.of_models(error)]
        of_pace, of_others, of_models = map(signed_percent, parts)
        return f"of the error of {signed_percent(error)}, the pace makes {of_pace}, other work {of_others} and the models {of_models}, as factors"

    def of_models(self, error: float) -> float:
        """The error that a prediction at this pace, with what other work adds, has where one at the pace of the rows has `error`."""
        return (1 + error) * self.slowdown - 1


def pace_beside(prediction: Prediction, references: References) -> Pace | None:
    """The pace beside the reference calls; None where the profile knows no time of theirs."""
    run = prediction.run
    prices = open_prices(run.cluster, run.execution)
    shown = paces_shown(prices, run.cluster, references.time_us)
    if not shown:
        return None
    return Pace(
        by_resource=paces_beside(prices, run.cluster, references.time_us),
        of_step=prediction.median_us / at_pace(run, shown).median_us,
        disturbance=disturbance_beside(prices, run.cluster, references),
        shown=shown,
    )


def pace_over(prediction: Prediction, rounds: Sequence[References]) -> Pace | None:
    """The median pace over several measurements of one run."""
    found = [pace for each in rounds if (pace := pace_beside(prediction, each))]
    if not found:
        return None
    return Pace(
        by_resource=_median_of([one.by_resource for one in found]),
        of_step=median(one.of_step for one in found),
        disturbance=median(one.disturbance for one in found),
        shown=_median_of([one.shown for one in found]),
    )


def noted_references(noted: object) -> References | None:
    """The reference calls that a file notes beside steps; None where it notes none that can be read."""
    if not isinstance(noted, dict):
        return None
    time_us, disturbance = _by_resource(noted.get("time_us")), _by_resource(noted.get("disturbance"))
    waited = noted.get("waited_share")
    known = waited if isinstance(waited, int | float) and 0 <= waited <= MOST_WAITED else 0.0
    return References(time_us=time_us, disturbance=disturbance, waited_share=known) if time_us else None


def _by_resource(noted: object) -> dict[Resource, float]:
    """The positive figures of a note by resource; none of a damaged one."""
    found = noted if isinstance(noted, dict) else {}
    return {
        resource: float(value)
        for resource in RESOURCES
        if isinstance(value := found.get(resource), int | float) and 0 < value < math.inf
    }


def _median_of(paces: Sequence[Mapping[Resource, float]]) -> dict[Resource, float]:
    return {resource: median(one[resource] for one in paces if resource in one) for resource in paces[0]}


def at_pace(run: TrainingRun, shown: Mapping[Resource, float]) -> Prediction:
    """The prediction of a run where the reference calls show these paces."""
    return estimate(run, prices=open_prices(run.cluster, run.execution, shown), require_fit=False)


SECONDS = 4.0
"""Seconds for which the reference calls are timed: a burst of load is shorter, so that the median of the readings does not move with it."""
TIMEOUT_S = 120.0


def pace_now(prediction: Prediction) -> Pace:
    """The pace of this machine now. UserError for a run of another machine, SamplesError where the profile's rows have no pace."""
    run = prediction.run
    if run.cluster.gpu.kind != "cpu":
        raise UserError(
            "--pace now: the pace of a GPU is read only in a sampling session and beside measured steps; omit it"
        )
    require_measurable(run, "torch")
    if not reference_us_of(open_prices(run.cluster, run.execution), run.cluster):
        raise SamplesError(
            f"cluster.profile: {run.cluster.profile!r}: --pace now: its rows were sampled without readings of the machine's pace, or on "
            f"another machine; run {sampling_command()} and {fitting_command()}"
        )
    references = run_in_processes(
        "pace",
        {"run": dump_run(run), "seconds": SECONDS, "timeout_s": TIMEOUT_S},
        name=run.name,
        processes=run.cluster.world_size,
        threads=run.cluster.threads,
        timeout_s=TIMEOUT_S,
    )
    pace = pace_beside(prediction, References(**references))
    assert pace is not None
    return pace
