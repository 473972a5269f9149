"""The three factors of an RL step fitted to published steps and phases: least error in log time, each held near 1 by a prior."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from predict.rl.phases import FACTORS, PASSES, UPDATES, Factors, moved_in, moving_time, reward_us
from predict.rl.step import RlStep, both_done_us, scaled_step
from predict.validation.compared import grouped
from predict.validation.published_row import PublishedRow
from regressors.features.arrays import Floats
from sampling.number_text import seconds

GRID = np.exp(np.linspace(log(0.8), log(3.0), 41))
"""Values that a factor may take."""
ROLLOUT_WIDTH, UPDATE_WIDTH, PASSES_WIDTH, ERROR_WIDTH = 0.5, 0.15, 0.3, 0.25
"""Standard deviations in log time: of the priors of the factors (training steps are known to about 15 % by published runs, forward passes
with logits in fp32 half as well, engines inside an RL framework hardly), and of a time's usual error."""
HALF_WIDTHS = tuple(place / 100 for place in range(201))
HELD = 0.9
SAME_RUN = (
    "source_id",
    "gpu",
    "mode",
    "n_gpus",
    "train_gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "gen_tp",
    "staleness",
    "precision_gen",
)
"""Columns by which rows are one run of several releases, which counts once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """A published step and its prediction without factors."""

    row: PublishedRow
    step: RlStep

    @property
    def source(self) -> str:
        return self.row.text("source_id")

    def measured_us(self, name: str) -> float:
        """The published time of a phase, or of the `step`; 0 where there is none."""
        return 1e6 * (self.row.number(f"{name}_s") or 0.0)

    @property
    def run(self) -> tuple[str, ...]:
        return tuple(self.row.text(name) for name in SAME_RUN)


def fitted_factors(observed: Sequence[Observed]) -> Factors:
    """The factors, of those on a grid, with the least sum of errors and priors; the shipped half-width. Without rows, 1."""
    rollout, update, passes = (axis.ravel() for axis in np.meshgrid(GRID, GRID, GRID, indexing="ij"))
    widths = ((rollout, ROLLOUT_WIDTH), (update, UPDATE_WIDTH), (passes, PASSES_WIDTH))
    loss = sum((np.log(factor) / width) ** 2 / 2 for factor, width in widths)
    weights = Counter(one.run for one in observed)
    for one in observed:
        for name, times_us in _times_us(one.step, rollout, update, passes).items():
            if measured_us := one.measured_us(name):
                loss += np.abs(np.log(times_us / measured_us)) / ERROR_WIDTH / weights[one.run]
    best = int(np.argmin(loss))
    return replace(FACTORS, rollout=float(rollout[best]), update=float(update[best]), passes=float(passes[best]))


def factors_without(observed: Sequence[Observed]) -> dict[str, Factors]:
    """Source → the factors fitted to the rows of all others."""
    sources = dict.fromkeys(one.source for one in observed)
    return {source: fitted_factors([one for one in observed if one.source != source]) for source in sources}


def fitted_half_width(observed: Sequence[Observed]) -> float:
    """The least half-width, in steps of 0.01, at which nine in ten rows of each source have their published step in its interval, each by
    the factors fitted without its source; rows that are one run count once together. The worst source decides, since one that nobody has
    seen may be like it."""
    without = factors_without(observed)
    by_source = grouped(observed, lambda one: one.source).values()

    def held(rows: Sequence[Observed], half_width: float) -> float:
        weights, inside = Counter(one.run for one in rows), 0.0
        for one in rows:
            time = scaled_step(one.step, replace(without[one.source], half_width=half_width)).time
            inside += time.covers(one.measured_us("step")) / weights[one.run]
        return inside / len(weights)

    fits = (width for width in HALF_WIDTHS if all(held(rows, width) >= HELD for rows in by_source))
    return next(fits, HALF_WIDTHS[-1])


def refit(observed: Sequence[Observed]) -> Factors | None:
    """The factors and the half-width by these rows; None for fewer than two sources, since none could be left out."""
    if len({one.source for one in observed}) < 2:
        return None
    return replace(fitted_factors(observed), half_width=fitted_half_width(observed))


def _times_us(step: RlStep, rollout: Floats, update: Floats, passes: Floats) -> dict[str, Floats]:
    """The phases that have a factor, and the step, under each triple of factors."""
    times = {phase.name: phase.time.median_us for phase in step.phases}
    found = {"gen": times["gen"] * rollout}
    found |= {name: times[name] * update for name in UPDATES if name in times}
    found |= {name: times[name] * passes for name in PASSES if name in times}
    found[moved_in(step.rl)] = found[moved_in(step.rl)] + moving_time(step.rl).median_us
    engines = found["gen"] + reward_us(step.rl, found["gen"])
    trainer = sum(
        (found[name] for name in (*UPDATES, *PASSES) if name in found),
        np.full(1, times["adv"] + times.get("checkpoint", 0.0)),
    )
    return found | {"step": both_done_us(step.rl.section, engines, trainer) + times["update_weights"]}


SAME_TASK = ("source_id", "model", "response_max")
"""Columns by which rows train one model on one task, so that their responses are about as long."""
UNLIKELY = 0.1
"""Likelihood, as a share of the best, below which a mean length is left out."""


def agreeing(
    row: PublishedRow, rows: Sequence[PublishedRow], steps: Mapping[str, Sequence[RlStep]], factors: Factors
) -> tuple[RlStep, ...]:
    """A row's steps by likely mean, without those that other rows of its source contradict; the row itself has no say in it, and the
    factors are those fitted without its source."""
    own = steps[row.row_id]
    others = [one for one in rows if one.row_id != row.row_id and _task(one) == _task(row) and one.row_id in steps]
    misses = [
        miss
        for one in others
        if (miss := _misses(one, steps[one.row_id], factors)) is not None and len(miss) == len(own)
    ]
    if not misses:
        return tuple(own)
    likelihood = np.exp(-np.mean(misses, axis=0) / ERROR_WIDTH)
    kept = likelihood >= UNLIKELY * likelihood.max()
    return tuple(step for step, keep in zip(own, kept, strict=True) if keep)


def _task(row: PublishedRow) -> tuple[str, ...]:
    return tuple(row.text(name) for name in SAME_TASK)


def _misses(row: PublishedRow, likely: Sequence[RlStep], factors: Factors) -> Floats | None:
    """Sizes of the errors of a row's update by likely mean, in log time; None without a published update."""
    seconds = row.number("update_actor_s")
    phases = [scaled_step(step, factors).phase("update_actor") for step in likely]
    if not seconds:
        return None
    return np.array([abs(log(phase.time.median_us / (1e6 * seconds))) for phase in phases if phase])


# Times of a table that contradict each other.


def doubts(rows: Sequence[PublishedRow]) -> dict[str, str]:
    """`row_id` → what is wrong with a printed update: it is part of its step, so that it cannot be longer; perhaps two rows of one task
    have each other's."""
    found = {}
    for row in rows:
        step, update = row.number("step_s"), row.number("update_actor_s")
        if not step or not update or update <= step:
            continue
        found[row.row_id] = f"update_actor_s: {seconds(update)} are longer than the step, {seconds(step)}"
        for other in rows:
            if other.row_id != row.row_id and _task(other) == _task(row) and _fits_better(other, update, step):
                swapped = f"{row.row_id} and {other.row_id} look swapped in the table: each adds up to its step with the other's"
                found[row.row_id] += f"; those of {swapped}"
                found[other.row_id] = f"update_actor_s: those of {swapped}"
    return found


def _fits_better(other: PublishedRow, update: float, step: float) -> bool:
    """Whether another row adds up to its step better with this update, and its own is no longer than this `step`."""
    own, whole = other.number("update_actor_s"), other.number("step_s")
    if not own or not whole or own > step:
        return False
    rest = sum(other.number(name) or 0.0 for name in ("gen_s", "old_log_prob_s", "ref_s"))
    return bool(rest) and abs(rest + update - whole) < abs(rest + own - whole)
