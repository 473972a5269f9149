"""Contention slowdown: the share of its time that compute loses while a collective runs beside it."""

from __future__ import annotations

from predict.prices.cost_model import CostModel
from sampling.cells.overlap import Overlap
from sampling.hardware.cluster import Cluster

CONTENTION_SLOWDOWN = 0.1
"""Prior, until a profile holds `overlap` rows: on published GPUs a kernel loses the multiprocessors that NCCL's channels
take (8-20 of 108-148)."""
SIDE = 4096
"""Side of the square product that is asked about: about as long as one of a large layer."""
SIZE_BYTES = 2**26
"""Size of the all-reduce beside it, about as long."""


def sampled_contention_slowdown(fitted: CostModel, cluster: Cluster) -> float | None:
    """The slowdown of a product beside an all-reduce among a node's GPUs by the profile's samples; None where there are none."""
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
    beside, alone = fitted.times([(both, "compute_beside"), (both.gemm, "forward")], cluster)
    if beside is None or alone is None:
        return None
    return min(1.0, max(0.0, beside.median_us / alone.median_us - 1))
