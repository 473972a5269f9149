"""Fixtures shared by all tests, and repeatable examples."""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from predict.serving import engine_loop
from predict.serving.kv_cache import BlockPool
from predict.serving.simulate import serve
from sampling.files import machine_code
from sampling.files.places import SHIPPED_DATA
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.store import profiles
from sampling.store.profiles import OWN, SHIPPED, is_fitted, read_manifest
from tests.oracles.shared import SHARED
from tests.predict.serving.servers import engine, requests, unit_table
from tests.warm.python import warm_interpreter

# collecting makes objects that live to the end of the run: nothing is garbage before the first test
gc.disable()

# the many Python processes that tests start would each compile every module anew where this is set, as in containers
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# a shell's background job ignores Ctrl-C, and so would every process that tests start and interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)

# torch's threads wait for each other by spinning: on these tensors they only burn the cores that other workers need
os.environ.setdefault("OMP_NUM_THREADS", "1")

# the same examples in every run: a test that failed will fail again; none fails because other work keeps the machine busy
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker of several, files of few tests come first: a single test may take half a minute, and none of those ends the run."""
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: tests[item.path])


def pytest_report_header() -> str:
    beside = "beside the clone" if SHARED.is_dir() else "not beside the clone: tests/oracles is left out"
    return f"tables of others: {beside}"


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def two_ranks() -> Cluster:
    """A CPU machine of two cores, one for each of two ranks."""
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="test", cores=2)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An interpreter that starts with torch imported."""
    with warm_interpreter(tmp_path_factory.mktemp("warm")) as interpreter:
        yield interpreter


@pytest.fixture
def starts_warm(warm_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that a test has started, and ranks among them, start with torch imported."""
    monkeypatch.setattr(sys, "executable", str(warm_python))


@pytest.fixture(autouse=True, scope="session")
def shipped_rows_stand_in() -> Iterator[None]:
    """No test rests on rows that `make sample` left in this clone."""
    with pytest.MonkeyPatch.context() as patch:

        def fitted(profile: str, data: Path | None = None) -> bool:
            return (profile != OWN or data is not None) and is_fitted(profile, data)

        patch.setattr(profiles, "is_fitted", fitted)
        yield


@pytest.fixture(autouse=True, scope="session")
def an_engines_loop_is_compiled_first(request: pytest.FixtureRequest) -> None:
    """By one worker of several, where no machine code of it is kept yet: in Python the engines of all tests take several times as long."""
    if getattr(request.config, "workerinput", {}).get("workerid") == "gw0":
        machine_code.ACCOUNT.uncompiled[engine_loop.play] = machine_code.COMPILING
        serve(engine(), BlockPool(blocks=1), unit_table(), requests((0.0, 1, 1)))


@pytest.fixture(autouse=True, scope="session")
def searches_stay_in_this_process() -> Iterator[None]:
    """A search starts no processes but in the tests of its workers: the cores are taken by other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("predict.plan_search.pricing.FEWEST_BATCHES", sys.maxsize)
        yield


@pytest.fixture
def on_the_shipped_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has the CPU that the shipped rows were taken on."""
    name = read_manifest(SHIPPED_DATA / "samples" / SHIPPED).device["name"]
    monkeypatch.setattr("predict.prices.sample_provenance.cpu_name", lambda: name)


@pytest.fixture
def on_another_cpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """This machine has a CPU that nobody sampled; its name."""
    monkeypatch.setattr("predict.prices.sample_provenance.cpu_name", lambda: "Abacus 1")
    return "Abacus 1"


@pytest.fixture(autouse=True)
def quick_garbage_collection() -> Iterator[None]:
    """Timing code collects garbage before each call: without the objects of torch's modules that takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    yield
