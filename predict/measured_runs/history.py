"""The history of a cluster: its recorded runs with their predictions, the changes among them, and the terms that explain these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

import numpy as np

from predict.measured_runs.fit_terms import step_us
from predict.measured_runs.records import (
    Record,
    id_of,
    local_time,
    outlier_reasons,
    past_date,
    recorded_clusters,
    records,
)
from predict.run.calibration_file import scaled
from predict.run.calibration_terms import PRIORS, TERMS, Calibration, bounds
from predict.run.training_run import TrainingRun
from regressors.features.arrays import Floats, Indices
from sampling.errors import SamplesError, UserError
from sampling.files.faults import counted
from sampling.files.places import own_data

# Drift: when measured steps changed against their predictions.
#
# The rule. Each configuration has a level of its own, which no prediction needs to meet: only its own runs are compared with one another.
# Of every stretch of runs, up to the last one or not, the shift is the level within it less the level of the others (least squares, all
# configurations alike); the stretch whose shift is the largest in its own standard errors is the candidate (circular binary
# segmentation: Olshen et al., Biostatistics 5(4), 2004). It is a change where, of PERMUTATIONS orders in which the runs of each
# configuration are shuffled among themselves, fewer than ALARM have as large a one: so a false alarm is as rare as ALARM wherever runs do
# not depend on the ones before, whatever their noise is. Then the parts on its sides and within it are asked again.

ALARM = 0.01
"""Share of histories without a change in which one is seen."""
PERMUTATIONS = 1999
LEAST_WEIGHT = 1.5
"""Runs n in and m out of a stretch, of one configuration, show its shift as n·m / (n + m) do: 3 and 3 are enough, or 2 and 6."""
SMALLEST = 0.01
"""Shift in log time below which a change is not reported."""
AT_ONCE = 5_000_000
"""Stretches of shuffled orders that are held at once, which bounds the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change between two neighbouring runs, by their places in order."""

    start: int
    """First run of the stretch before it."""
    place: int
    """First run after it."""
    stop: int
    """Place behind the last run of the stretch after it."""
    shift: float
    """Measured over predicted after it, less before: in log time, so that 0.06 is about 6 % slower."""
    chance: float
    """Share of orders without a change that have as large a shift."""


def changes(logs: Sequence[float], configurations: Sequence[object]) -> list[Change]:
    """The changes in logarithms of measured over predicted steps, in order; `configurations` shows which runs are of one."""
    names = {name: number for number, name in enumerate(dict.fromkeys(configurations))}
    groups = np.array([names[name] for name in configurations], dtype=np.intp)
    values = np.array(logs, dtype=np.float64)
    chances = dict(_cuts(values, groups, 0, len(values)))
    bounds = [0, *sorted(chances), len(values)]
    found = []
    for start, place, stop in zip(bounds, bounds[1:], bounds[2:], strict=False):
        shift = _shift(values, groups, (start, place, stop))
        if abs(shift) >= SMALLEST:
            found.append(Change(start=start, place=place, stop=stop, shift=shift, chance=chances[place]))
    return found


def _cuts(logs: Floats, groups: Indices, start: int, stop: int) -> Iterator[tuple[int, float]]:
    """The places at which a stretch begins or ends, each with its chance."""
    found = _stretch(logs[start:stop], groups[start:stop])
    if found is None:
        return
    first, last, chance = found
    bounds = [start, *(start + place for place in (first, last) if 0 < place < stop - start), stop]
    yield from ((place, chance) for place in bounds[1:-1])
    for part in pairwise(bounds):
        yield from _cuts(logs, groups, *part)


def _stretch(logs: Floats, groups: Indices) -> tuple[int, int, float] | None:
    """The stretch that stands out the most, and the chance of one as great; None where none does."""
    if not len(logs):
        return None
    members = np.eye(groups.max() + 1)[groups]
    counts = members.sum(axis=0)
    before = np.concatenate([np.zeros((1, len(counts))), np.cumsum(members, axis=0)])
    first, last = np.triu_indices(len(logs) + 1, 1)
    inside = before[last] - before[first]
    weights = (inside * (1 - inside / np.maximum(counts, 1))).sum(axis=1)
    enough = weights >= LEAST_WEIGHT - 1e-9
    first, last, weights = first[enough], last[enough], weights[enough]
    centred = logs - (members.T @ logs / np.maximum(counts, 1))[groups]
    if not len(first) or not centred.any():
        return None

    def sizes(orders: Floats) -> Floats:
        sums = np.concatenate([np.zeros((len(orders), 1)), np.cumsum(orders, axis=1)], axis=1)
        size: Floats = np.abs(sums[:, last] - sums[:, first]) / np.sqrt(weights)
        return size

    (own,) = sizes(centred[np.newaxis])
    best = int(np.argmax(own))
    blocks = _shuffled(centred, groups, max(1, AT_ONCE // len(first)))
    as_great = sum(int((sizes(block).max(axis=1) >= own[best] * (1 - 1e-9)).sum()) for block in blocks)
    chance = (1 + as_great) / (1 + PERMUTATIONS)
    return (int(first[best]), int(last[best]), chance) if chance <= ALARM else None


def _shuffled(values: Floats, groups: Indices, at_once: int) -> Iterator[Floats]:
    """PERMUTATIONS orders of the values within their configurations, in blocks; the same ones each time."""
    random = np.random.default_rng(0)
    in_order = np.argsort(groups, kind="stable")
    for done in range(0, PERMUTATIONS, at_once):
        keys = random.random((min(at_once, PERMUTATIONS - done), len(values))) + groups
        block = np.empty_like(keys)
        block[:, in_order] = values[np.argsort(keys, axis=1)]
        yield block


def _shift(logs: Floats, groups: Indices, bounds: tuple[int, int, int]) -> float:
    """The level after the middle bound less that before it, over the configurations on both sides; 0 where there are none."""
    start, place, stop = bounds
    total = weight = 0.0
    for group in np.unique(groups[start:stop]):
        before, after = (logs[side][groups[side] == group] for side in (slice(start, place), slice(place, stop)))
        if len(before) and len(after):
            own = len(before) * len(after) / (len(before) + len(after))
            total += own * float(after.mean() - before.mean())
            weight += own
    return total / weight if weight else 0.0


# The terms of a calibration that would explain a change: a step that depends twice as much on one must have moved twice as far.

FIRST = 0.1
"""Logarithm of the factor that is tried first."""
ROUNDS = 4
NOTHING = 1e-3
"""Share of a step that is too little to know a term by."""
AS_WELL = 3.84
"""Squared standard deviations by which another term may be worse and still explain the change as well (chi-squared, 95 %)."""
OWN = 0.01
"""Standard deviation in log time of what each configuration's shift has of its own. Assumed: repeats on the same nodes
differ by 0.1 to 2 %."""


Respond: TypeAlias = Callable[[str, float], Floats]
"""A term and the logarithm of its factor → how far the step of each configuration moves, in log time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A factor on one term that stands for a change."""

    term: str
    factor: float
    share: float
    """Share of the shifts' squares that it explains."""
    distance: float
    """Squared standard deviations of the term's prior and of what it leaves: the least is the likeliest."""


def explanations(shifts: Floats, weights: Floats, respond: Respond, noise: float) -> list[Explanation]:
    """The terms that explain the configurations' mean shifts over a change, the likeliest first, and those that do as well.

    A weight is n·m / (n + m) of n runs before and m after; `noise` is the standard deviation of a run in log time.
    """
    precision = 1 / (OWN**2 + noise**2 / weights)
    found = [each for name in TERMS if (each := _by(name, shifts, precision, respond))]
    found.sort(key=lambda each: each.distance)
    return [each for each in found if each.distance <= found[0].distance + AS_WELL]


def _by(name: str, shifts: Floats, precision: Floats, respond: Respond) -> Explanation | None:
    """The likeliest factor on a term; None where no step depends on it, or it would leave its bounds."""
    low, high = (math.log(bound) for bound in bounds()[name])
    log = math.copysign(FIRST, float((precision * shifts).sum()))
    for _ in range(ROUNDS):  # a step is not linear in a term: a transfer comes out from behind its compute
        slopes = respond(name, log) / log
        if float(np.abs(slopes).max()) < NOTHING:
            return None
        wanted = float((precision * slopes * shifts).sum()) / float(
            (precision * slopes**2).sum() + 1 / PRIORS[name] ** 2
        )
        if not low <= wanted <= high or abs(wanted) < NOTHING:
            return None
        log = wanted
    left = shifts - respond(name, log)
    return Explanation(
        term=name,
        factor=math.exp(log),
        share=1 - float((precision * left**2).sum() / (precision * shifts**2).sum()),
        distance=(log / PRIORS[name]) ** 2 + float((precision * left**2).sum()),
    )


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
    outliers: Sequence[str]
    """Why each run does not count in the errors and changes; empty for one that does."""
    drifts: Sequence[Drift]
    earlier: int = 0
    """Runs before these, against which changes are judged."""

    def has_runs(self, since: str) -> bool:
        """Whether any run was measured on that day (ISO 8601) or later."""
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
                f"--since: {self.cluster} has no run from {since} or later, its last is from {self.records[-1].date[:10]}; give an earlier day"
            )
        first = max(places[0], len(self.records) - last if last else 0)
        return replace(
            self,
            records=self.records[first:],
            ids=self.ids[first:],
            now_us=self.now_us[first:],
            outliers=self.outliers[first:],
            drifts=[each for each in self.drifts if local_time(each.until) >= local_time(self.records[first].date)],
            earlier=first,
        )

    @property
    def counting(self) -> Sequence[Record]:
        """The runs that are not doubtful."""
        return [one for one, doubt in zip(self.records, self.outliers, strict=True) if not doubt]

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


def history(
    cluster: str | None = None,
    *,
    since: str | None = None,
    last: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[History, ...]:
    """The history of a cluster, or of all that have recorded runs: of the runs from the date `since` on, or of the `last` ones.

    UserError for a date that is not valid; SamplesError where no run is recorded, or one cannot be predicted any more.
    """
    day = past_date("--since", since)
    names = [cluster] if cluster else recorded_clusters()
    if not names:
        raise SamplesError(f"no run is recorded in {own_data() / 'runs'}; `predict record CONFIG --log FILE` does it")
    known = [history_of(name, report) for name in names]
    recent = [each for each in known if each.has_runs(day)] or known
    return tuple(each.of(day, last) for each in recent)


def history_of(cluster: str, report: Callable[[str], None] = lambda _: None) -> History:
    """The history of a cluster; SamplesError where no run of it is recorded, or one cannot be predicted any more."""
    found = records(cluster, report)
    runs: dict[str, TrainingRun] = {}
    for place, one in found:
        runs.setdefault(one.described, one.loaded(place))
    report(f"{cluster}: {counted(len(found), 'run')} of {counted(len(runs), 'configuration')}")
    predicted_us = {described: step_us(run) for described, run in runs.items()}
    every = [one for _, one in found]
    outliers = outlier_reasons(every)
    counting = [one for one, doubt in zip(every, outliers, strict=True) if not doubt]
    of_configuration = [one.described for one in counting]
    logs = [math.log(one.measured.step_us / predicted_us[one.described]) for one in counting]
    return History(
        cluster=cluster,
        records=every,
        ids=[id_of(place) for place, _ in found],
        now_us=[predicted_us[one.described] for one in every],
        outliers=outliers,
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
            moved.append((run, math.log(step_us(run))))
            shifts.append(fmean(after) - fmean(before))
            weights.append(len(before) * len(after) / (len(before) + len(after)))

    def respond(term: str, log: float) -> Floats:
        terms = Calibration(**{term: math.exp(log)})
        return np.array([math.log(step_us(scaled(run, terms))) - base for run, base in moved])

    noise = math.sqrt(sum(each**2 for each in left) / max(1, len(left) - means))  # each mean takes a degree of freedom
    return explanations(np.array(shifts), np.array(weights), respond, noise)
