"""The measured step without its profiler, where it is known how long the step takes without one."""

from __future__ import annotations

from dataclasses import replace

from predict.explain.measured import MeasuredRank, MeasuredStep
from predict.explain.trace.timeline import UNNAMED
from predict.step.breakdown import HOST

MOST_OF_KERNELS = 0.8
"""Most of the operators' time that is taken for the profiler's; beyond it all rows share."""


def without_profiler(measured: MeasuredStep) -> MeasuredStep:
    """The step as its log or its trace says it runs untraced: what the profiler adds is taken from the host's time first, which records
    each operator, and the rest from all operators alike. The step itself where nothing tells, or where it was not slowed."""
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
