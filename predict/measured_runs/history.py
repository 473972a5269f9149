"""The history of a cluster: its recorded runs beside their predictions, the changes among them, and the terms that explain these."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from predict import estimate
from predict.measured_runs.drift import Change, Explanation, FloatArray, changes, explanations
from predict.measured_runs.records import Record, id_of, local_time, records, standing_doubts
from predict.run.calibration_file import scaled
from predict.run.calibration_terms import Calibration
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.files.faults import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """A change of a cluster's steps against their predictions."""

    since: str
    """Date of the first run after it."""
    until: str
    """Date of the last run before the next change, or of all."""
    factor: float
    """Steps after it over those before, each against its prediction."""
    before: int
    after: int
    """Runs on either side."""
    chance: float
    """Share of histories without a change that look as changed."""
    explained_by: Sequence[Explanation]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """A cluster's runs in the order of their dates."""

    cluster: str
    records: Sequence[Record]
    ids: Sequence[str]
    """The id of each record."""
    now_us: Sequence[float]
    """Each step as this version predicts it without calibration: drift is against one and the same predictor."""
    doubts: Sequence[str]
    """Why each run does not count in the errors and changes; empty for one that does."""
    drifts: Sequence[Drift]
    earlier: int = 0
    """Runs before these, which changes are told against."""

    def has_runs(self, since: str) -> bool:
        """Whether any run is of that day (ISO 8601) or later."""
        return bool(self._since(since))

    def _since(self, since: str) -> list[int]:
        return [
            place for place, one in enumerate(self.records) if not since or local_time(one.date) >= local_time(since)
        ]

    def of(self, since: str = "", last: int | None = None) -> History:
        """The runs from a day on (ISO 8601), the last ones of them, with the changes that any of these is after. UserError without any."""
        places = self._since(since)
        if not places:
            raise UserError(
                f"--since: no run of {self.cluster} is of {since} or later, its last of {self.records[-1].date[:10]}; give an earlier day"
            )
        first = max(places[0], len(self.records) - last if last else 0)
        return replace(
            self,
            records=self.records[first:],
            ids=self.ids[first:],
            now_us=self.now_us[first:],
            doubts=self.doubts[first:],
            drifts=[each for each in self.drifts if local_time(each.until) >= local_time(self.records[first].date)],
            earlier=first,
        )

    @property
    def counting(self) -> Sequence[Record]:
        """The runs that are not doubtful."""
        return [one for one, doubt in zip(self.records, self.doubts, strict=True) if not doubt]

    @property
    def mean_error(self) -> float | None:
        """None where no run counts, as of the other figures."""
        return fmean(abs(one.error) for one in self.counting) if self.counting else None

    @property
    def bias(self) -> float | None:
        return fmean(one.error for one in self.counting) if self.counting else None

    @property
    def coverage(self) -> float | None:
        return fmean(one.covered for one in self.counting) if self.counting else None


def history(cluster: str, tell: Callable[[str], None] = lambda _: None) -> History:
    """The history of a cluster; SamplesError where no run of it is recorded, or one cannot be predicted any more."""
    found = records(cluster, tell)
    runs: dict[str, TrainingRun] = {}
    for place, one in found:
        runs.setdefault(one.described, one.loaded(place))
    tell(f"{cluster}: {counted(len(found), 'run')} of {counted(len(runs), 'configuration')}")
    predicted_us = {described: _step_us(run) for described, run in runs.items()}
    every = [one for _, one in found]
    doubts = standing_doubts(every)
    counting = [one for one, doubt in zip(every, doubts, strict=True) if not doubt]
    of_configuration = [one.described for one in counting]
    logs = [math.log(one.measured.step_us / predicted_us[one.described]) for one in counting]
    return History(
        cluster=cluster,
        records=every,
        ids=[id_of(place) for place, _ in found],
        now_us=[predicted_us[one.described] for one in every],
        doubts=doubts,
        drifts=[
            Drift(
                since=counting[change.place].date,
                until=counting[change.stop - 1].date,
                factor=math.exp(change.shift),
                before=change.place - change.start,
                after=change.stop - change.place,
                chance=change.chance,
                explained_by=_explained(change, logs, of_configuration, runs),
            )
            for change in changes(logs, of_configuration)
        ],
    )


def _explained(
    change: Change, logs: Sequence[float], of_configuration: Sequence[str], runs: dict[str, TrainingRun]
) -> list[Explanation]:
    """The terms that the shifts of the configurations on both sides of a change speak for."""
    moved, shifts, weights, left, means = [], [], [], [], 0
    for described, run in runs.items():
        before, after = (
            [logs[place] for place in range(*side) if of_configuration[place] == described]
            for side in ((change.start, change.place), (change.place, change.stop))
        )
        sides = [side for side in (before, after) if side]
        left += [log - fmean(side) for side in sides for log in side]
        means += len(sides)
        if before and after:
            moved.append((run, math.log(_step_us(run))))
            shifts.append(fmean(after) - fmean(before))
            weights.append(len(before) * len(after) / (len(before) + len(after)))

    def respond(term: str, log: float) -> FloatArray:
        terms = Calibration(**{term: math.exp(log)})
        return np.array([math.log(_step_us(scaled(run, terms))) - base for run, base in moved])

    noise = math.sqrt(sum(each**2 for each in left) / max(1, len(left) - means))  # each mean takes a degree of freedom
    return explanations(np.array(shifts), np.array(weights), respond, noise)


def _step_us(run: TrainingRun) -> float:
    return estimate(run, require_fit=False).median_us
