"""Fixtures shared by all tests, and repeatable examples."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sampling.hardware.cluster import Cluster, load_cluster
from tests.project_copy import project_with_examples

# the same examples in every run: a test that failed will fail again
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def two_ranks() -> Cluster:
    """A CPU machine of two cores, one for each of two ranks."""
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="test", cores=2)


@pytest.fixture(scope="session")
def project_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with every example of `docs/extend.md`."""
    return project_with_examples(tmp_path_factory.mktemp("project"))


@pytest.fixture(autouse=True)
def quick_garbage_collection() -> Iterator[None]:
    """Timing code collects garbage before each call: without the objects of torch's modules that takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    yield
