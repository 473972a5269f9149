"""Fixtures shared by all tests."""

from __future__ import annotations

import pytest

from sampling.hardware.cluster import Cluster, load_cluster


@pytest.fixture(scope="session")
def two_ranks() -> Cluster:
    """A CPU machine of two cores, one for each of two ranks."""
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="test", cores=2)
