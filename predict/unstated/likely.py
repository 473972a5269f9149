"""One answer for a run that is partly unknown: the equally likely runs that it may be, and the interval of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from predict.interval import Interval, equally_likely
from predict.memory.estimate import memory_of
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from predict.step.scheduling import Estimate
from predict.unstated.values import USUAL, nodes_of_experts, stated, values_of


def likely_runs(base: TrainingRun, unknown: Sequence[str]) -> tuple[TrainingRun, ...]:
    """The runs that differ from `base` in the unknown keys and fit in memory, of those the most usual; all where none is known to fit.

    ConfigError where no value of a key keeps the rules of a config.
    """
    runs: tuple[TrainingRun, ...] = (base,)
    keys = tuple(path for path in USUAL if path in unknown)
    for path in keys:
        runs = tuple(each for run in runs for each in values_of(run, path, unknown))
    if len(runs) == 1:
        return runs
    # the memory of `best` is known once times have chosen the schedule, which then fits
    possible = [run for run in runs if run.plan.schedule == BEST or memory_of(run).feasible] or runs
    if "plan.ep" in keys:
        fewest = min(map(nodes_of_experts, possible))
        possible = [run for run in possible if nodes_of_experts(run) == fewest]
    return tuple(possible)


@dataclass(frozen=True, kw_only=True)
class LikelySteps:
    """The predictions of equally likely runs, and the keys in which they differ."""

    predictions: tuple[Prediction, ...]
    unknown: tuple[str, ...]
    unstated: float = 0.0
    """Half-width in log time at 90 % of what is open too, and the runs do not differ in."""

    @cached_property
    def step_time(self) -> Interval:
        """The step time with the 90 % interval of all runs."""
        return equally_likely([one.step_time for one in self.predictions], self.unstated)

    @property
    def middle(self) -> Prediction:
        """The run whose step is nearest to the median of all."""
        target = math.log(self.step_time.median_us)
        return min(self.predictions, key=lambda one: abs(math.log(one.median_us) - target))

    @cached_property
    def widths(self) -> Mapping[str, float]:
        """Unknown key → half of the range that its values leave the step, in log time."""
        return {path: self._width(path) for path in self.unknown}

    @cached_property
    def unknowns(self) -> Mapping[str, float]:
        """The causes of the interval's width, widest first, as `Prediction.unknowns`, the unknown keys among them."""
        found = {self.in_words(path): width for path, width in self.widths.items()}
        terms = {**self.middle.unknowns, **found}
        return dict(sorted(terms.items(), key=lambda term: -term[1]))

    def in_words(self, path: str) -> str:
        """The key and its values: `vpp unknown (2, 4 or 8)`."""
        values = sorted({stated(one.run, path) for one in self.predictions})
        *first, last = map(str, values)
        return f"{path.partition('.')[2]} unknown ({', '.join(first)}{' or ' if first else ''}{last})"

    def _width(self, path: str) -> float:
        by_value: dict[object, list[float]] = {}
        for one in self.predictions:
            by_value.setdefault(stated(one.run, path), []).append(math.log(one.median_us))
        means = [fmean(logs) for logs in by_value.values()]
        return (max(means) - min(means)) / 2


def likely_steps(base: TrainingRun, unknown: Sequence[str], predict: Estimate, *, unstated: float = 0.0) -> LikelySteps:
    """The predictions of `likely_runs`."""
    runs = likely_runs(base, unknown)
    return LikelySteps(
        predictions=tuple(map(predict, runs)),
        unknown=tuple(path for path in USUAL if path in unknown),
        unstated=unstated,
    )
