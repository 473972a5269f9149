"""Fixtures shared by all tests, repeatable examples, and one skip for all tests that lack the same thing."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sampling.hardware.cluster import Cluster, load_cluster

# the same examples in every run: a test that failed will fail again
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(what, available): skipped without it; see tests/needs.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip one test for each thing that is missing, whose reason counts all that need it, and deselect the others."""
    lacking: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        for mark in item.iter_markers("needs"):
            what, available = mark.args
            if not available:
                lacking[what].append(item)
    others = []
    for what, tests in lacking.items():
        tests[0].add_marker(pytest.mark.skip(reason=f"{what} is missing, which {len(tests)} tests need"))
        others += tests[1:]
    config.hook.pytest_deselected(items=others)
    deselected = set(others)
    items[:] = [item for item in items if item not in deselected]


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
