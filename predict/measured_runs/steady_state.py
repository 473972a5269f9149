"""The steady step of a log: what it states once warm-up is over.

The rule: of the timed lines of the last start, the later half by number of steps, and of these the ones with the last
global batch (it may grow, or the log go on with another run); those whose optimizer was skipped are left out; the
median of the rest. Warm-up, compiling, graph capture and the first fills of caches lie before it; checkpoints and
evaluations are fewer than half of the lines. With fewer than FEW lines all but the first count; of a single one nothing
can be left out.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from predict.run.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStep:
    """One line of a log about a step, or about the mean of the steps since the line before; None is what it does not state."""

    step: int
    time_us: float | None = None
    samples_per_s: float | None = None
    """Sequences of the whole run."""
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    """TFLOP/s per GPU, by the framework's own count of a step's FLOPs."""
    batch: int | None = None
    """Sequences of the global batch."""
    seq_len: int | None = None
    skipped: bool = False
    """The optimizer was skipped, as fp16's loss scaling does after an overflow."""

    @property
    def timed(self) -> bool:
        """Whether a step time follows from the line, for a known batch."""
        return any((self.time_us, self.samples_per_s, self.tokens_per_s_per_gpu))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """Settings that a log states of its run."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Value by its path in a run config, such as `batch.global`; `batch.accumulation` and `placement.tp` as import-config has them."""
    uncertain: tuple[str, ...] = ()
    """Sentences on settings that may be wrong, each beginning with its path."""


USUAL_NODE = 8
"""GPUs of a node where a log states how many there are in all."""


def usual_nodes(world: int) -> dict[str, int]:
    """Settings of the cluster for so many GPUs in all: whole nodes of USUAL_NODE, or one of fewer."""
    per_node = min(USUAL_NODE, world)
    return {"cluster.nodes": -(-world // per_node), "cluster.gpus_per_node": per_node}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLog:
    """A log, read: the framework that wrote it, and its timed steps in the order of the file, those of the last start alone."""

    place: str
    framework: str
    steps: Sequence[LoggedStep]
    peak_bytes: float | None
    """The largest peak of allocated memory that any line states."""
    starts: int
    """Times that the step numbers began anew: a run that was restarted has several."""
    date: str
    """Day and time of the last line that has one, such as 2026-03-12T10:22:00; empty without any."""
    stated: Stated = field(default_factory=Stated)


FEW = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class SteadyStep:
    """The median of the steady lines, with what else they state; None for what none of them states."""

    step_us: float
    p10_us: float
    p90_us: float
    lines: int
    """Lines that it is the median of, of `of_lines` that are timed."""
    of_lines: int
    pace: float
    """Median time of the earlier half of these lines over the later half's: above 1 where steps still get faster."""
    skipped: bool
    """The optimizer was skipped in every one of them."""
    stated: bool
    """The log states step times; otherwise they follow from its rate and the config's batch."""
    samples_per_s: float | None
    tokens_per_s_per_gpu: float | None
    tflops_per_gpu: float | None
    batch: int | None
    seq_len: int | None


def steady_step(log: RunLog, run: TrainingRun) -> SteadyStep:
    """The steady step of a log of `run`, whose batch and GPUs a rate is of."""
    kept = steady(log.steps)
    times_us = [time_us_of(step, run) for step in kept]
    return SteadyStep(
        step_us=median(times_us),
        p10_us=float(np.percentile(times_us, 10)),
        p90_us=float(np.percentile(times_us, 90)),
        lines=len(kept),
        of_lines=len(log.steps),
        pace=_pace(times_us),
        skipped=all(step.skipped for step in kept),
        stated=any(step.time_us for step in kept),
        samples_per_s=_median(kept, lambda step: step.samples_per_s),
        tokens_per_s_per_gpu=_median(kept, lambda step: step.tokens_per_s_per_gpu),
        tflops_per_gpu=_median(kept, lambda step: step.tflops_per_gpu),
        batch=kept[-1].batch,
        seq_len=kept[-1].seq_len,
    )


def steady(steps: Sequence[LoggedStep]) -> Sequence[LoggedStep]:
    """The lines that the rule keeps; at least one."""
    first = 1 if 1 < len(steps) < FEW else 0
    middle = (steps[0].step + steps[-1].step) / 2
    late = [step for step in steps if step.step > middle] if len(steps) >= FEW else steps[first:]
    late = [step for step in late if step.batch == late[-1].batch]
    return [step for step in late if not step.skipped] or late


def _pace(times_us: Sequence[float]) -> float:
    middle = len(times_us) // 2
    return median(times_us[:middle]) / median(times_us[-middle:]) if middle else 1.0


def time_us_of(step: LoggedStep, run: TrainingRun) -> float:
    """The time of a timed step: as stated, else by the rate at which it takes the run's batch."""
    if step.time_us:
        return step.time_us
    if step.samples_per_s:
        return 1e6 * run.batch.global_ / step.samples_per_s
    assert step.tokens_per_s_per_gpu
    return 1e6 * run.batch.global_ * run.batch.seq_len / (step.tokens_per_s_per_gpu * run.cluster.world_size)


def _median(steps: Sequence[LoggedStep], of: Callable[[LoggedStep], float | None]) -> float | None:
    known = [value for step in steps if (value := of(step)) is not None]
    return median(known) if known else None


REPEATS = 0.06
"""Standard deviation in log time of repeats of one run: 2 to 6 % between published ones."""
AT_ODDS = 4.0
"""Standard deviations between a run and what others make of it, beyond which they contradict each other."""


def are_repeats(times_us: Collection[float]) -> bool:
    """Whether all of these steps may be of one run."""
    return math.log(max(times_us) / min(times_us)) <= AT_ODDS * REPEATS
