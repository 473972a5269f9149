"""Operators whose true time is known, to check the regressors against."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from regressors.dataset.training_data import TrainingData, training_data
from sampling.call import Call, Counted, Phase
from sampling.hardware.cluster import Cluster, Gpu, Link
from sampling.store.sample import Sample
from tests.made_rows import row

GPU = Gpu(
    name="synthetic",
    kind="gpu",
    architecture="synthetic",
    peak_tflops={"bf16": 400.0},
    memory_gib=80,
    memory_gb_per_s=2000,
    cache_mib=40,
    multiprocessors=100,
    efficiency={},
    sources={},
)
CLUSTER = Cluster(
    gpu=GPU,
    intra_node=Link(latency_us=5, gb_per_s=300),
    inter_node=Link(latency_us=10, gb_per_s=50),
    nodes=1,
    gpus_per_node=8,
    profile="synthetic",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Product(Call):
    """A matrix product of m × n × k with an unlisted operator's name."""

    NAME: ClassVar[str] = "product"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward", "backward")

    m: int
    n: int
    k: int

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        compute = 2.0 * self.m * self.n * self.k / cluster.gpu.peak_flops_per_us("bf16")
        moved = 2.0 * (self.m * self.n + self.m * self.k + self.n * self.k)
        return {"compute": compute, "memory": moved / cluster.gpu.bytes_per_us()}

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return {name: math.log2(value) for name, value in (("m", self.m), ("n", self.n), ("k", self.k))} | {
            "always": 3.0
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SpreadProduct(Product):
    """A product whose output is reduced over `ranks`, so that its terms depend on where it runs."""

    NAME: ClassVar[str] = "spread_product"

    ranks: int = 1

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        terms = Product.terms(self, phase, cluster)
        if self.ranks > 1:
            terms["wire"] = 2.0 * self.m * self.n / cluster.intra_node.bytes_per_us()
        return terms

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        features = Product.features(self, phase, cluster)
        if self.ranks > 1:
            features["log2_wire"] = math.log2(self.terms(phase, cluster)["wire"])
        return features

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=Product(m=self.m, n=self.n, k=self.k), phase=phase),)


@contextmanager
def without_smooth_correction() -> Iterator[None]:
    """Fits take half the time: the correction that is the slowest to fit is left to the tests about it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regressors.models.candidates.SMOOTH_ROWS", 0)
        yield


def roofline_time(call: Call) -> float:
    """1.5 × compute + 2.5 × memory + 3 µs."""
    terms = call.terms("forward", CLUSTER)
    return 1.5 * terms["compute"] + 2.5 * terms["memory"] + 3.0


def random_products(count: int, *, seed: int, low: int = 64, high: int = 4096) -> list[Product]:
    """Sizes uniform in log space from `low` to `high`."""
    sizes = np.exp(np.random.default_rng(seed).uniform(math.log(low), math.log(high), size=(count, 3))).astype(int)
    return [Product(m=int(m), n=int(n), k=int(k)) for m, n, k in sizes]


def sample(call: Call, time_us: float, *, spread: float = 0.01, repeats: int = 20, threads: int = 0) -> Sample:
    """A row whose 10th and 90th percentiles lie `spread` in log time from the median."""
    bounds = {"low_us": time_us * math.exp(-spread), "high_us": time_us * math.exp(spread)}
    return row(call, "forward", time_us, threads=threads, busy_ranks=8, repeats=repeats, **bounds)


def sampled(
    calls: Sequence[Call], *, truth: Callable[[Call], float] = roofline_time, noise: float = 0.0, seed: int = 0
) -> TrainingData:
    """Training data of one operator with log-normal `noise`."""
    factors = np.exp(np.random.default_rng(seed).normal(0, noise, len(calls)))
    return training_data(
        [(sample(call, truth(call) * float(factor)), CLUSTER) for call, factor in zip(calls, factors, strict=True)]
    )[0]
