"""The clocks of samples, from the rows of a profile to the price of a run: each effect counts one time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from predict.prices.open import open_prices
from predict.run.execution import Execution
from regressors.train import train
from sampling.call import Counted, State
from sampling.files.places import DATA_VARIABLE
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.gemm import Gemm
from sampling.store.manifest import Manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import write_table

SIZES = (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
RATIO = 1.2
"""Sustained over burst time of the rows; the hardware file says 1.12."""
ASKED = Gemm(dtype="bf16", m=4096, n=4096, k=4096)


def burst_us(gemm: Gemm) -> float:
    return 5.0 + gemm.flops("forward") / 700e6


def row(size: int, state: State) -> Sample:
    call = replace(ASKED, m=size, n=size)
    time_us = burst_us(call) * (RATIO if state == "sustained" else 1.0)
    return Sample(
        call=call,
        phase="forward",
        threads=0,
        busy_ranks=1,
        time_us=time_us,
        low_us=0.999 * time_us,
        high_us=1.001 * time_us,
        repeats=50,
        quarantine="",
        session=0,
        state=state,
    )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    return load_cluster(hardware="h200", nodes=1, gpus_per_node=1, profile="mine")


def price_us(rows: list[Sample], cluster: Cluster, data: Path, clocks: str) -> float:
    samples = data / "samples" / "mine"
    device = {"name": "NVIDIA H200", "count": 1, "memory_gib": 139.8}
    write_manifest(samples, Manifest(profile="mine", hardware="h200", device=device))
    write_table(samples, "gemm", rows)
    fitted = data / "regressors" / "mine"
    train(samples=samples, output=fitted, fitted_at="", jobs=1, progress=lambda done, total, name: None)
    prices = open_prices(cluster, Execution(clocks=clocks))
    (priced,) = prices.priced([Counted(call=ASKED, phase="forward")])
    assert priced.time.source == "measured"
    return priced.time.median_us


@pytest.mark.parametrize(
    ("states", "clocks", "factor"),
    [
        (("burst", "sustained"), "sustained", RATIO),
        (("burst", "sustained"), "burst", 1.0),
        (("burst",), "sustained", 1.12),
        (("burst",), "burst", 1.0),
    ],
)
def test_the_clocks_of_a_long_run_count_once(
    states: tuple[State, ...], clocks: str, factor: float, cluster: Cluster, tmp_path: Path
) -> None:
    rows = [row(size, state) for size in SIZES for state in states]
    assert price_us(rows, cluster, tmp_path, clocks) == pytest.approx(factor * burst_us(ASKED), rel=0.01)


def test_a_few_sustained_rows_do_not_change_the_state_of_the_others(cluster: Cluster, tmp_path: Path) -> None:
    rows = [row(size, "burst") for size in SIZES] + [row(SIZES[0], "sustained")]
    assert price_us(rows, cluster, tmp_path, "burst") == pytest.approx(burst_us(ASKED), rel=0.01)
