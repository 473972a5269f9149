"""Many predictions at once: threads, processes and hash seeds give what one after the other gives, to the last byte."""

import gc
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pytest

import predict
from predict.prices import open as prices_module
from predict.prices import price_list as price_list_module
from predict.prices.open import KEPT_LISTS, open_prices
from predict.prices.price_list import PriceList
from predict.reports.prediction import predictions_json
from regressors.bank.bank import Bank
from sampling.call import Counted
from sampling.files.places import CONFIGS
from sampling.operators.gemm import Gemm

DEMO = str(CONFIGS / "runs" / "demo.yml")
PLANS = ((), ("plan.pp=1", "plan.tp=2"), ("plan.pp=1", "plan.dp=2"), ("plan.schedule=zb-h1",))
SWEEP = [
    (f"batch.seq_len={tokens}", f"batch.global={sequences}", *plan)
    for tokens, sequences, plan in itertools.product((64, 127), (8, 16), PLANS)
]


def as_json(overrides: Sequence[str]) -> str:
    return json.dumps(predictions_json({"simulate": predict.one_batch(DEMO, overrides)}), indent=1)


@pytest.fixture(scope="module")
def one_after_the_other() -> list[str]:
    prices_module._opened.clear()
    return [as_json(overrides) for overrides in SWEEP]


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_threads_that_share_a_price_list_predict_what_one_does(one_after_the_other: list[str]) -> None:
    prices_module._opened.clear()
    predict.one_batch(DEMO)  # so that all threads share its list
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(as_json, SWEEP)) == one_after_the_other
    assert [as_json(overrides) for overrides in SWEEP] == one_after_the_other


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_pool_of_processes_predicts_what_one_does(way: str, one_after_the_other: list[str]) -> None:
    # Python warns of any fork while torch's threads run; predicting uses none of them
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(way)) as pool:
        assert list(pool.map(as_json, SWEEP[::3], chunksize=2)) == one_after_the_other[::3]


def test_the_hash_seed_changes_nothing(one_after_the_other: list[str]) -> None:
    command = [sys.executable, "-m", "predict", "one-batch", DEMO, "--json"]
    command += [part for override in SWEEP[5] for part in ("--set", override)]
    shown = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "12345"}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.rstrip("\n") == one_after_the_other[5]


def test_a_sweep_over_clusters_does_not_grow() -> None:
    run = predict.load(DEMO)
    link = run.cluster.inter_node
    loaded: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        load = Bank.load
        patch.setattr(Bank, "load", classmethod(lambda cls, directory: loaded.append(1) or load(directory)))
        tracemalloc.start()
        for place in range(80):
            if place == 40:
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
            faster = replace(run.cluster, inter_node=replace(link, gb_per_s=link.gb_per_s + place))
            open_prices(faster, run.execution).learn([GEMM])
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert grown < 2**18
    assert len(loaded) <= 1
    assert len(prices_module._opened) == KEPT_LISTS


GEMM = Counted(call=Gemm(dtype="fp32", m=64, n=64, k=64), phase="forward", count=1)


def test_a_price_list_starts_anew_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_list_module, "MOST_KNOWN", 100)
    run = predict.load(DEMO)
    prices = PriceList([prices_module.SpeedOfLight()], run.cluster, profile_error=None)
    first = prices.priced([GEMM])
    for m in range(1, 1000):
        prices.learn([Counted(call=replace(GEMM.call, m=m), phase="forward", count=1)])
    assert prices.priced([GEMM]) == first
    assert len(prices._known) <= 101
