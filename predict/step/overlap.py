"""Exposed communication: the time that communication adds to the compute beside which it runs.

While a collective runs beside kernels it takes multiprocessors and memory bandwidth from them, so that hidden communication
still costs a share of its time: the contention slowdown (`predict.prices.device_samples`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from predict.prices.device_samples import CONTENTION_SLOWDOWN
from predict.prices.kernels.norm import Time
from predict.rank.sharded_weights import FSDP
from predict.run.training_run import TrainingRun
from sampling.arithmetic.arrays import smaller
from sampling.call import Call
from sampling.collectives.kinds import Collective
from sampling.collectives.token_exchange import TokenExchange

EXCHANGE_MULTIPROCESSORS: Mapping[str, int] = {"deepep": 20, "hybridep": 16}
"""Multiprocessors that a dispatcher's kernels take while tokens travel (Megatron-Core, transformer_config.py: moe_deepep_num_sms and
moe_hybridep_num_sms); the others' exchange is NCCL's."""


def exposed_us(
    communication_us: Time,
    work_us: Time,
    *,
    share: float,
    most: float = 1.0,
    contention_slowdown: float = CONTENTION_SLOWDOWN,
    exposed_time: float = 1.0,
) -> Time:
    """Time in µs that communication adds to work, where up to `most` of it may run during `share` of the work's time.

    Never less than the communication that does not fit beside the work, unless a calibration says so: `exposed_time`, its factor,
    changes what is exposed of communication of which a part is hidden, and never beyond all of it.
    """
    hidden_us = least(communication_us * most, work_us * share)
    exposed = communication_us - hidden_us * (1.0 - contention_slowdown)
    return exposed if exposed_time == 1.0 else least(communication_us, exposed * exposed_time)


def least(one: Time, other: Time) -> Time:
    """The smaller of the two; 0 where that is negative."""
    shorter: Time = smaller(one, other)
    return np.maximum(shorter, 0.0) if isinstance(shorter, np.ndarray) else max(shorter, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contention:
    """Contention slowdowns of a run. An exchange of tokens by a library other than NCCL takes `of_exchange`, the share of the
    multiprocessors that its kernels have. For NCCL's collectives the `sampled` one counts where there is one; else the framework's
    for weights and gradients that are sharded layer by layer (`of_sharding`), and the prior for the others."""

    sampled: float | None
    of_sharding: float
    of_exchange: float
    gpus_per_node: int
    network_share: float = 1.0
    exposed_time: float = 1.0
    """Factor on what is exposed of overlapped communication, from a calibration."""

    def slowdown(self, heading: str, communication: Iterable[tuple[Call, float]]) -> float:
        """The slowdown beside calls under a heading of the ledger, each with its time in µs."""
        of_calls = [(self._of_call(heading, call), time_us) for call, time_us in communication]
        total_us = sum(time_us for _, time_us in of_calls)
        return sum(slowdown * time_us for slowdown, time_us in of_calls) / total_us if total_us else 0.0

    def _of_call(self, heading: str, call: Call) -> float:
        if isinstance(call, TokenExchange):
            return self.of_exchange
        if self.sampled is not None:
            return self.sampled
        return self.of_sharding * self._channels(call) if heading == FSDP else CONTENTION_SLOWDOWN

    def _channels(self, call: Call) -> float:
        """Share of NCCL's usual channels, which are multiprocessors, that a group takes: between nodes it builds them for each of
        the network cards that its ranks have (NCCL, src/graph/search.cc)."""
        if not isinstance(call, Collective) or call.ranks <= call.ranks_per_node:
            return 1.0
        return self.network_share * call.ranks_per_node / self.gpus_per_node


def contention_of(run: TrainingRun, sampled: float | None) -> Contention:
    """The contention slowdowns of a run, `sampled` by its profile or None."""
    gpu = run.cluster.gpu
    taken = EXCHANGE_MULTIPROCESSORS.get(run.execution.dispatch, 0)
    return Contention(
        sampled=sampled,
        of_sharding=run.execution.sharding_contention,
        of_exchange=min(1.0, taken / gpu.multiprocessors),
        gpus_per_node=run.cluster.gpus_per_node,
        network_share=run.cluster.network_share,
        exposed_time=run.execution.exposed_time,
    )
