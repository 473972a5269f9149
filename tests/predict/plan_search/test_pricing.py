"""Batches on several processes and machines: the same answer, and a worker that is lost costs its batch only."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from predict import estimate
from predict.plan_search.legal import legal_plans
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.pricing import Workers
from predict.plan_search.search import Found, best_plans, survey
from sampling.errors import UserError
from tests.predict.plan_search.spaces import DENSE, question

TOP = 5


def found_with(workers: Workers) -> Found:
    surveyed = survey(legal_plans(question("llama3-8b", 1, 8, DENSE[9])), max_memory=1.0)
    return best_plans([surveyed], OBJECTIVES["time"], estimate, top=TOP, workers=workers)


@pytest.fixture(autouse=True)
def processes_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predict.plan_search.pricing.FEWEST_BATCHES", 2)


@pytest.fixture(scope="module")
def alone() -> Found:
    return found_with(Workers(jobs=1))


def die_once(flag: str, number: int) -> int:
    """The number; the first process that is asked for it dies."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return number
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_processes_give_the_same_answer_though_one_dies(alone: Found, tmp_path: Path) -> None:
    with Workers(jobs=2) as workers:
        # it costs its batch only
        assert workers.map(die_once, [(str(tmp_path / "flag"), number) for number in range(4)]) == [0, 1, 2, 3]
        many = found_with(workers)
    assert (tmp_path / "flag").exists()
    assert (many.ranked, many.left_out, many.judged) == (alone.ranked, alone.left_out, alone.judged)


@pytest.fixture
def dask_cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (pip install 'steptime[dask]')")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield cluster


def test_dask_gives_the_same_answer_though_a_worker_is_killed(alone: Found, dask_cluster: Any, tmp_path: Path) -> None:
    with Workers("dask", address=dask_cluster.scheduler_address) as workers:
        # one of the two dies in the middle of its batch
        numbers = workers.map(die_once, [(str(tmp_path / "flag"), number) for number in range(6)])
        assert numbers == [0, 1, 2, 3, 4, 5]
        many = found_with(workers)
    assert (tmp_path / "flag").exists()
    assert (many.ranked, many.left_out, many.judged) == (alone.ranked, alone.left_out, alone.judged)


def test_ray_gives_the_same_answer(alone: Found) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'steptime[ray]')")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        with Workers("ray") as workers:
            assert found_with(workers).ranked == alone.ranked
    finally:
        ray.shutdown()


def test_a_dead_address_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predict.plan_search.pricing.ANSWERS_WITHIN", "0.2s")
    pytest.importorskip("distributed", reason="Dask is not installed (pip install 'steptime[dask]')")
    with (
        pytest.raises(UserError, match=r"--address: no Dask scheduler answers at 'localhost:1'"),
        Workers("dask", address="localhost:1") as workers,
    ):
        workers.map(max, [(1, 2), (3, 4)])
