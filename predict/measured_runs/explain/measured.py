"""The measured ledger: the traces of one or more ranks as µs per step by heading, which add up to the measured step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Any

from predict.measured_runs.explain.messages import BARRIER
from predict.measured_runs.explain.naming import Half
from predict.measured_runs.explain.timeline import UNNAMED
from predict.measured_runs.explain.trace_matches_config import pipeline_rank
from predict.measurement.pace import noted_references
from predict.measurement.system_noise import NOISES
from predict.run.training_run import TrainingRun
from predict.step.breakdown import HOST
from sampling.call import Call, Phase
from sampling.store.pace_log import References

CallKey = tuple[Call, Phase]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredMessages:
    """The messages of one heading on a rank, per step: their number, time in flight, transfer alone, and what they add to the step."""

    count: float
    total_us: float
    transfer_us: float
    exposed_us: float

    @property
    def hidden_us(self) -> float:
        return max(0.0, self.total_us - self.exposed_us)

    @property
    def waiting_us(self) -> float:
        """The part of what they add that waits for another rank."""
        return max(0.0, self.exposed_us - self.transfer_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRank:
    """One rank's mean step: µs by heading, which add up to `step_us`, and what it ran."""

    rank: int
    steps: int
    step_us: float
    headings: Mapping[str, float]
    kernels_us: float
    """Time of kernels; on a CPU, of operators that compute."""
    matched_us: float
    """The part of it whose operator has a name."""
    calls: Mapping[CallKey, tuple[float, float]]
    """Call and direction → (runs, µs) a step."""
    operators: Mapping[str, float]
    """µs per step by operator and by kernel of the trace, for naming the kernel that an operator ran."""
    messages: Mapping[str, MeasuredMessages]
    longest_idle_us: float
    step_times_us: tuple[float, ...] = ()
    halves: Mapping[Half, float] = field(default_factory=dict)
    """µs a step of operators by heading and direction."""
    splits_backward: bool | None = None
    """Whether gradients of weights are computed apart from those of inputs; None where the trace does not show."""
    forwards_first: bool | None = None
    """Whether all forwards of a step come before its first backward; None where the trace does not show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedStep:
    """The mean of the ranks that were traced."""

    ranks: tuple[MeasuredRank, ...]
    rule: str
    on_device: bool
    device: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What `predict measure --trace` wrote of its run; empty for other traces."""
    logged_us: float | None = None
    """The step by the run's log."""

    @property
    def step_us(self) -> float:
        return fmean(rank.step_us for rank in self.ranks)

    @property
    def untraced_us(self) -> float | None:
        """The step as it ran without the profiler: by the run's log, or as the trace notes it; None where neither shows."""
        noted = self._noted_steps_us
        return self.logged_us or (median(noted) if noted else None)

    @property
    def noise(self) -> str:
        """The kind of noise of the steps without the profiler, as the trace notes it
        (`predict.measurement.system_noise`); '' where it notes none."""
        noted = self.facts.get("noise")
        return noted if isinstance(noted, str) and noted in NOISES else ""

    @property
    def references(self) -> tuple[References, ...]:
        """The reference calls beside the steps, as the trace notes them; none where it does not."""
        noted = noted_references(self.facts.get("references"))
        return (noted,) if noted else ()

    @property
    def _noted_steps_us(self) -> list[float]:
        """The steps without the profiler that the trace notes."""
        noted = self.facts.get("untraced_steps_us")
        return (
            [float(each) for each in noted if isinstance(each, int | float) and each > 0]
            if isinstance(noted, list)
            else []
        )

    @property
    def spread(self) -> float:
        """Standard deviation in log time of the run's steps about one another: of those without the profiler, where the trace notes them,
        else of the traced ones; 0 of fewer than three."""
        logs = [math.log(each) for each in self._noted_steps_us or self.ranks[0].step_times_us]
        return stdev(logs) if len(logs) > 2 else 0.0

    @property
    def headings(self) -> dict[str, float]:
        """µs by heading, the mean over the ranks; they add up to the step."""
        names = dict.fromkeys(name for rank in self.ranks for name in rank.headings)
        return {name: fmean(rank.headings.get(name, 0.0) for rank in self.ranks) for name in names}

    @property
    def halves(self) -> dict[Half, float]:
        """µs by heading and direction, the mean over the ranks."""
        halves = dict.fromkeys(half for rank in self.ranks for half in rank.halves)
        return {half: fmean(rank.halves.get(half, 0.0) for rank in self.ranks) for half in halves}

    @property
    def matched_share(self) -> float:
        """Share of the kernels' time that an operator of ours names."""
        kernels_us = sum(rank.kernels_us for rank in self.ranks)
        return sum(rank.matched_us for rank in self.ranks) / kernels_us if kernels_us else 0.0

    @property
    def sent(self) -> frozenset[str]:
        """Headings of the messages, barriers apart."""
        return frozenset(name for rank in self.ranks for name in rank.messages) - {BARRIER}

    def splits(self, run: TrainingRun) -> dict[int, bool]:
        """Whether every pipeline rank splits its backward, as far as the traces show it."""
        stated = zip(self.pipeline_ranks(run), self.ranks, strict=True)
        return {rank: one.splits_backward for rank, one in stated if one.splits_backward is not None}

    def forwards_first(self, run: TrainingRun) -> dict[int, bool]:
        """Whether every pipeline rank runs all forwards before its first backward, as far as the traces show it."""
        stated = zip(self.pipeline_ranks(run), self.ranks, strict=True)
        return {rank: one.forwards_first for rank, one in stated if one.forwards_first is not None}

    def pipeline_ranks(self, run: TrainingRun) -> tuple[int, ...]:
        """The pipeline rank of each traced rank."""
        return tuple(pipeline_rank(rank.rank, run) for rank in self.ranks)

    def waiting_us(self, heading: str) -> float:
        """The waiting of a heading's messages for other ranks, which one rank alone does not show."""
        found = self.messages(heading) if len(self.ranks) > 1 else None
        return found.waiting_us if found else 0.0

    def messages(self, heading: str) -> MeasuredMessages | None:
        """The messages of a heading, the mean over the ranks that have them."""
        found = [rank.messages[heading] for rank in self.ranks if heading in rank.messages]
        if not found:
            return None
        return MeasuredMessages(
            count=fmean(each.count for each in found),
            total_us=fmean(each.total_us for each in found),
            transfer_us=fmean(each.transfer_us for each in found),
            exposed_us=fmean(each.exposed_us for each in found),
        )


MOST_OF_KERNELS = 0.8
"""Most of the operators' time that is taken for the profiler's; beyond it all rows share."""


def without_profiler(measured: TracedStep) -> TracedStep:
    """The step as its log or its trace says it runs untraced: what the profiler adds is taken from the host's time first, which records
    each operator, and the rest from all operators alike. The step itself where nothing shows, or where it was not slowed."""
    if measured.untraced_us is None or measured.untraced_us >= measured.step_us:
        return measured
    share = measured.untraced_us / measured.step_us
    return replace(measured, ranks=tuple(_rank(rank, share) for rank in measured.ranks))


def _rank(rank: MeasuredRank, share: float) -> MeasuredRank:
    """A rank's step at `share` of its length."""
    added_us = rank.step_us * (1 - share)
    of_host_us = min(added_us, max(0.0, rank.headings.get(HOST, 0.0)))
    left_us = added_us - of_host_us
    if left_us > MOST_OF_KERNELS * rank.kernels_us:
        return _scaled(rank, dict.fromkeys(rank.headings, share), share, rank.step_us * share)
    factor = 1 - left_us / rank.kernels_us if left_us else 1.0
    factors = {
        name: 1 - (1 - factor) * _kernels_us(rank, name) / time_us for name, time_us in rank.headings.items() if time_us
    }
    if of_host_us:
        factors[HOST] = 1 - of_host_us / rank.headings[HOST]
    return _scaled(rank, factors, factor, rank.step_us * share)


def _kernels_us(rank: MeasuredRank, heading: str) -> float:
    """Time of operators under a heading; what is not named is nothing else."""
    if heading == UNNAMED:
        return rank.kernels_us - rank.matched_us
    return sum(time_us for (name, _), time_us in rank.halves.items() if name == heading)


def _scaled(rank: MeasuredRank, factors: dict[str, float], of_kernels: float, step_us: float) -> MeasuredRank:
    return replace(
        rank,
        step_us=step_us,
        headings={name: time_us * factors.get(name, 1.0) for name, time_us in rank.headings.items()},
        kernels_us=rank.kernels_us * of_kernels,
        matched_us=rank.matched_us * of_kernels,
        calls={key: (runs, time_us * of_kernels) for key, (runs, time_us) in rank.calls.items()},
        halves={half: time_us * of_kernels for half, time_us in rank.halves.items()},
        operators={name: time_us * of_kernels for name, time_us in rank.operators.items()},
    )
