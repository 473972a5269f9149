"""Devices and clusters whose prices nobody sampled."""

from functools import cache

from predict.prices.collectives import collective_us
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster, Gpu, load_cluster


def gpu_of(hardware: str) -> Gpu:
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="test").gpu


@cache
def cluster_of(hardware: str, nodes: int = 64) -> Cluster:
    return load_cluster(hardware=hardware, nodes=nodes, gpus_per_node=8, profile="no-such-profile")


def time_us(kind: type[Collective], size_bytes: int, ranks: int, ranks_per_node: int, cluster: Cluster) -> float:
    return collective_us(kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=ranks_per_node), cluster)
