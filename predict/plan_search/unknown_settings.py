"""Runs whose settings are partly unknown: the runs that they may be, and one answer for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from predict import estimate
from predict.config.document import Config
from predict.config.draft import INTERLEAVED, ONE_CHUNK
from predict.config.load import load_partly_unknown
from predict.interval import Interval, equally_likely
from predict.memory.advice import changed
from predict.memory.estimate import memory_of
from predict.plan_search.axes import MOST_SEQUENCES
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import ConfigError

# The values that an unknown setting of a run may have: those that its framework's users choose, and that leave a sound plan.

INTERLEAVED_BY_DEFAULT = ("nemo",)
"""Frameworks whose recipes interleave every pipeline."""
LAYERS_A_CHUNK = (4, 2, 1)
"""Usual layers of a chunk of an interleaved pipeline."""


def values_of(run: TrainingRun, path: str, unknown: Sequence[str]) -> tuple[TrainingRun, ...]:
    """The runs that differ from this one in the key `path` alone, each value as likely as another; the rules of a config hold for
    each of them. ConfigError, with the fault of the last, where none is left.

    `unknown` holds `plan.schedule` where the pipeline is known to be interleaved.
    """
    found, refusal = [], ConfigError(f"{path}: unknown, and no usual value fits this run; give one")
    for settings in USUAL[path](run, unknown):
        try:
            found.append(changed(run, settings))
        except ConfigError as error:
            refusal = error
    if not found:
        raise refusal
    return tuple(found)


def _chunks(run: TrainingRun, unknown: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """One chunk a rank unless the framework interleaves, and chunks of usual sizes; where the layers do not divide, embedding and
    head may each take a layer's place."""
    plan, layers = run.plan, run.model.layers
    in_turn = "plan.schedule" in unknown or run.execution.framework in INTERLEAVED_BY_DEFAULT
    counted = plan.count_embedding + plan.count_loss or 2 * bool(layers % plan.pp)
    places = (layers + counted) // plan.pp
    several = {places // size for size in LAYERS_A_CHUNK if plan.pp > 1 and (layers + counted) % (plan.pp * size) == 0}
    for chunks in sorted(several if several and in_turn else several | {1}):
        yield {"plan.vpp": chunks, **_schedule(run, chunks), **_split(run, chunks)}


def _schedule(run: TrainingRun, chunks: int) -> dict[str, str]:
    """1F1B, interleaved where there are several chunks; any other schedule stays."""
    if run.plan.schedule not in (ONE_CHUNK, INTERLEAVED):
        return {}
    return {"plan.schedule": INTERLEAVED if chunks > 1 else ONE_CHUNK}


def _split(run: TrainingRun, chunks: int) -> dict[str, int]:
    uneven = bool(run.model.layers % (run.plan.pp * chunks))
    own = run.plan.layout or run.plan.first_stage_layers or run.plan.last_stage_layers or run.plan.count_loss
    return {"plan.count_embedding": 1, "plan.count_loss": 1} if uneven and not own else {}


def _microbatches(run: TrainingRun, _: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Powers of two that leave at least as many microbatches as pipeline ranks, so that the pipeline fills."""
    sequences = run.batch.global_ // run.plan.dp
    for power in range(MOST_SEQUENCES.bit_length()):
        micro = 2**power
        if sequences % micro == 0 and (micro == 1 or sequences // micro >= run.plan.pp):
            yield {"batch.micro": micro}


def _experts(run: TrainingRun, _: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Powers of two up to all ranks of a stage."""
    ranks, ep = run.cluster.world_size // run.plan.pp, 1
    while ep <= ranks:
        yield {"plan.ep": ep}
        ep *= 2


USUAL: Mapping[str, Callable[[TrainingRun, Sequence[str]], Iterator[Mapping[str, Any]]]] = {
    "plan.ep": _experts,
    "plan.vpp": _chunks,
    "batch.micro": _microbatches,
    "plan.recompute": lambda run, _: ({"plan.recompute": name} for name in ("none", "selective")),
}
"""Key path → its usual values; those of recomputation leave out `full`, which costs a third more compute and is stated
where it is used. In the order in which they are chosen, since the later ones depend on those before."""


def nodes_of_experts(run: TrainingRun) -> int:
    """Nodes that one copy of the experts spreads over: of spreads that fit in memory, those over fewer nodes exchange less."""
    return -(-run.plan.ep * run.plan.etp // run.cluster.gpus_per_node)


def stated(run: TrainingRun, path: str) -> Any:
    """The run's own value of a key that may be unknown."""
    section, _, key = path.partition(".")
    return getattr(getattr(run, section), key)


# One answer for a run that is partly unknown: the equally likely runs that it may be, and the interval of all of them.


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
    unknown_settings_width: float = 0.0
    """Half-width in log time at 90 % of what is open too, and the runs do not differ in."""

    @cached_property
    def step_time(self) -> Interval:
        """The step time with the 90 % interval of all runs."""
        return equally_likely([one.step_time for one in self.predictions], self.unknown_settings_width)

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


def likely_steps(config: Config, overrides: Sequence[str] = ()) -> LikelySteps:
    """Predict one training step of a config with keys that are `unknown`, such as `plan.vpp=unknown`: each of the equally likely runs
    that it may be, and `.step_time`, the interval of all of them.

    ConfigError lists every fault of the config; keys that may be unknown: plan.vpp, plan.ep, plan.recompute, batch.micro.
    """
    base, unknown = load_partly_unknown(config, overrides)
    return LikelySteps(
        predictions=tuple(estimate(run, require_fit=False) for run in likely_runs(base, unknown)),
        unknown=tuple(path for path in USUAL if path in unknown),
    )
