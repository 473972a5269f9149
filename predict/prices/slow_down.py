"""How much slower compute gets beside communication, by a profile's own samples."""

from __future__ import annotations

from predict.prices.price_list import CostModel
from sampling.cells.overlap import Overlap
from sampling.hardware.cluster import Cluster

SIDE = 4096
"""Of the product asked about, and the bytes of the all-reduce beside it: both as long as those of a large layer."""
SIZE_BYTES = 2**26


def sampled_slow_down(fitted: CostModel, cluster: Cluster) -> float | None:
    """Time that a product loses beside a collective of the node's GPUs, as a share of its own; None where none was sampled."""
    ranks = cluster.gpus_per_node
    if ranks < 2:
        return None
    both = Overlap(
        dtype="bf16",
        m=SIDE,
        n=SIDE,
        k=SIDE,
        collective="all_reduce",
        size_bytes=SIZE_BYTES,
        ranks=ranks,
        ranks_per_node=ranks,
    )
    beside, alone = fitted.times([(both, "compute_beside"), (both.compute, "forward")], cluster)
    if beside is None or alone is None:
        return None
    return min(1.0, max(0.0, beside.median_us / alone.median_us - 1))
