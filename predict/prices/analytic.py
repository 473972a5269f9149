"""The speed of light with stated efficiencies: what a call costs where nothing was sampled.

The efficiencies, by kind of work, stand with their sources in `configs/hardware/<name>.yml`; `predict.prices.kernels` says
how they depend on a kernel's shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from predict.interval import Interval
from predict.prices.collective_priors import collective_us, half_width
from predict.prices.kernels import operator_us
from regressors.bank.times import Times
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster, Gpu

SPREAD = 2.0
"""Factor either way that a 90 % interval takes: on published tables the efficiency of single operators, a shape at a
time, ranges over 0.3–0.9 of peak about a flat 0.6."""


class SpeedOfLight:
    """A CostModel that knows every atomic call: its slowest resource at the stated efficiency, plus message latencies."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
        return [_time(call, phase, cluster) for call, phase in calls]


def _time(call: Call, phase: Phase, cluster: Cluster) -> Times:
    if call.OVERHEAD:
        return Interval.exactly(0.0).as_times("analytic")
    if isinstance(call, Operator) and cluster.gpu.kind != "cpu" and not call.parts(phase):
        return _kernel_time(call, phase, cluster.gpu)
    if isinstance(call, Collective) and cluster.gpu.kind != "cpu":
        return _collective_time(call, cluster)
    terms = call.terms(phase, cluster)
    latency_us = terms.pop("latency", 0.0) + terms.pop("fork_join", 0.0)
    efficiency = cluster.gpu.efficiency
    resources = [value / efficiency[_kind(name)] for name, value in terms.items()]
    median_us = latency_us + max(resources, default=0.0)
    return Interval.from_log(median_us, math.log(SPREAD)).as_times("analytic")


def _kernel_time(call: Operator, phase: Phase, gpu: Gpu) -> Times:
    median_us, width = operator_us(call, phase, gpu)
    return Interval.from_log(median_us, width).as_times("analytic")


def _collective_time(call: Collective, cluster: Cluster) -> Times:
    return Interval.from_log(collective_us(call, cluster), half_width(call)).as_times("analytic")


def _kind(term: str) -> str:
    """The efficiency that governs a term: memory traffic is the elementwise one, whoever causes it."""
    if term.endswith("_memory"):
        return "elementwise"
    return "wire" if term.startswith("wire") else term.removesuffix("_compute")
