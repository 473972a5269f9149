"""Fixtures shared by all tests, and repeatable examples."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sampling.hardware.cluster import Cluster, load_cluster

# the same examples in every run: a test that failed will fail again
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def two_ranks() -> Cluster:
    """A CPU machine of two cores, one for each of two ranks."""
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="test", cores=2)


@pytest.fixture(autouse=True)
def quick_garbage_collection() -> Iterator[None]:
    """Timing code collects garbage before each call: without the objects of torch's modules that takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    yield
