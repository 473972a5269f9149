"""Which collectives to time: every kind, message size and group that the cluster offers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sampling.call import Call
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, ReduceScatter, SendRecv
from sampling.collectives.topology import groups_of, placements
from sampling.hardware.machine import Machine


def collective_sweep(machine: Machine, message_bytes: Sequence[int], sizes: int) -> Iterator[Call]:
    """Every collective at `sizes` message sizes over every placement, one group alone and all groups at once.

    The order covers the range of sizes early, since a budget may end it anywhere.
    """
    for size_bytes in _spread(_sizes(message_bytes, sizes)):
        for placement in placements(machine):
            kinds = (AllReduce, AllGather, ReduceScatter, AllToAll, *((SendRecv,) if placement.ranks == 2 else ()))
            for groups in sorted({1, len(groups_of(placement, machine))}):
                for kind in kinds:
                    yield kind(
                        size_bytes=size_bytes,
                        ranks=placement.ranks,
                        ranks_per_node=placement.ranks_per_node,
                        groups=groups,
                    )


def _sizes(low_high: Sequence[int], count: int) -> list[int]:
    low, high = low_high
    return sorted({round(low * math.exp(math.log(high / low) * step / max(1, count - 1))) for step in range(count)})


def _spread(sizes: Sequence[int]) -> list[int]:
    """The largest and the smallest first, then the middle of each gap between those chosen so far."""
    gaps, order = [(0, len(sizes) - 1)], list(dict.fromkeys((sizes[-1], sizes[0])))
    while gaps:
        low, high = gaps.pop(0)
        if high - low > 1:
            middle = (low + high) // 2
            order.append(sizes[middle])
            gaps += [(low, middle), (middle, high)]
    return order
