"""Exposed communication: the time that communication adds to the compute beside which it runs.

While a collective runs beside kernels it takes multiprocessors and memory bandwidth from them, so that hidden communication
still costs a share of its time: the contention slowdown (`predict.prices.device_samples`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from predict.prices.device_samples import CONTENTION_SLOWDOWN
from predict.prices.kernels.norm import Time
from predict.workload.rank.sharded_weights import FSDP
from sampling.arithmetic.arrays import smaller
from sampling.call import Call
from sampling.collectives.kinds import Collective


def exposed_us(
    communication_us: Time,
    work_us: Time,
    *,
    share: float,
    most: float = 1.0,
    contention_slowdown: float = CONTENTION_SLOWDOWN,
) -> Time:
    """Time in µs that communication adds to work, where up to `most` of it may run during `share` of the work's time.

    Never less than the communication that does not fit beside the work.
    """
    hidden_us = least(communication_us * most, work_us * share)
    return communication_us - hidden_us * (1.0 - contention_slowdown)


def least(one: Time, other: Time) -> Time:
    """The smaller of the two; 0 where that is negative."""
    shorter: Time = smaller(one, other)
    return np.maximum(shorter, 0.0) if isinstance(shorter, np.ndarray) else max(shorter, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contention:
    """Contention slowdowns of a run: the `sampled` one where there is one; else the framework's for weights and gradients that are
    sharded layer by layer (`of_sharding`), and the prior for all other communication."""

    sampled: float | None
    of_sharding: float
    gpus_per_node: int
    network_share: float = 1.0

    def slowdown(self, heading: str, communication: Iterable[tuple[Call, float]]) -> float:
        """The slowdown beside calls under a heading of the ledger, each with its time in µs."""
        if self.sampled is not None:
            return self.sampled
        if heading != FSDP:
            return CONTENTION_SLOWDOWN
        of_calls = [(self._channels(call), time_us) for call, time_us in communication]
        total_us = sum(time_us for _, time_us in of_calls)
        return self.of_sharding * sum(share * time_us for share, time_us in of_calls) / total_us if total_us else 0.0

    def _channels(self, call: Call) -> float:
        """Share of NCCL's usual channels, which are multiprocessors, that a group takes: between nodes it builds them for each of
        the network cards that its ranks have (NCCL, src/graph/search.cc)."""
        if not isinstance(call, Collective) or call.ranks <= call.ranks_per_node:
            return 1.0
        return self.network_share * call.ranks_per_node / self.gpus_per_node
