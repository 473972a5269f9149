"""Choices that need no prediction: plans at random, and a rule of four lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import fmean

from predict.validation.ranking.plans import MeasuredPlan
from predict.validation.ranking.scores import NEAR_BEST, best_us

SAMPLED = 5
FASTEST_FIRST = ("flash2", "flash", "", "megatron", "torch")
"""Attention kernels; a table without the column has one kernel."""
LEAST_FIRST = ("none", "selective", "", "full")
"""Recomputation; blank is not published."""


def random_regret(plans: Sequence[MeasuredPlan]) -> float:
    """The expected regret of one plan drawn among those that run."""
    return fmean(_times(plans)) / best_us(plans) - 1


def best_of_random_regret(plans: Sequence[MeasuredPlan], drawn: int = SAMPLED) -> float:
    """The expected regret of the best of `drawn` plans among those that run, drawn without repetition.

    The plan at place i of n in order of time is the best in C(n − i − 1, drawn − 1) of C(n, drawn) draws.
    """
    times = sorted(_times(plans))
    drawn = min(drawn, len(times))
    ways = comb(len(times), drawn)
    mean = sum(time * comb(len(times) - place - 1, drawn - 1) for place, time in enumerate(times)) / ways
    return mean / times[0] - 1


def random_launches(plans: Sequence[MeasuredPlan]) -> float:
    """The expected launches of all plans in random order until one is near the best: (N + 1) / (K + 1) for K near it of N."""
    near = sum(time <= NEAR_BEST * best_us(plans) for time in _times(plans))
    return (len(plans) + 1) / (near + 1)


def by_rule(plan: MeasuredPlan) -> tuple[float, ...]:
    """Fastest kernels, then least recomputation, then the smallest microbatch, then the smallest tp · pp, and tp."""
    row = plan.row
    kernel, recompute = row.text("attn_kernel"), row.text("recompute")
    tp, pp = row.number("tp") or 1.0, row.number("pp") or 1.0
    return (
        FASTEST_FIRST.index(kernel),
        row.text("rms_kernel") == "0",
        LEAST_FIRST.index(recompute) if recompute in LEAST_FIRST else len(LEAST_FIRST),
        row.number("mbs") or 1.0,
        tp * pp,
        tp,
    )


def _times(plans: Sequence[MeasuredPlan]) -> list[float]:
    return [plan.measured_us for plan in plans if plan.measured_us is not None]
