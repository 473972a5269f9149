"""The clocks of samples, from the rows of a profile to the price of a run: each effect counts one time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from predict.prices.open import open_prices
from predict.run.execution import Execution
from regressors.train import train
from sampling.call import Counted, State
from sampling.files.places import DATA_VARIABLE
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.store.profiles import Manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import write_table
from tests.regressors.few_trees import few_trees

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


ROWS = {
    "both": [row(size, state) for size in SIZES for state in ("burst", "sustained")],
    "burst": [row(size, "burst") for size in SIZES],
    "one sustained": [*(row(size, "burst") for size in SIZES), row(SIZES[0], "sustained")],
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The data folder of a profile with these rows, fitted when it is first asked for."""

    @cache
    def data_of(rows: str) -> Path:
        data = tmp_path_factory.mktemp("data")
        samples = data / "samples" / "mine"
        device = {"name": "NVIDIA H200", "count": 1, "memory_gib": 139.8}
        write_manifest(samples, Manifest(profile="mine", hardware="h200", device=device))
        write_table(samples, "gemm", ROWS[rows])
        output = data / "regressors" / "mine"
        with few_trees():
            train(samples=samples, output=output, fitted_at="", jobs=1, progress=lambda done, total, name: None)
        return data

    return data_of


@pytest.mark.parametrize(
    ("rows", "clocks", "factor"),
    [
        ("both", "sustained", RATIO),
        ("both", "burst", 1.0),
        ("burst", "sustained", 1.12),
        ("burst", "burst", 1.0),
        ("one sustained", "burst", 1.0),
    ],
)
def test_the_clocks_of_a_long_run_count_once(
    rows: str, clocks: str, factor: float, fitted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(fitted(rows)))
    prices = open_prices(
        load_cluster(hardware="h200", nodes=1, gpus_per_node=1, profile="mine"), Execution(clocks=clocks)
    )
    (priced,) = prices.priced([Counted(call=ASKED, phase="forward")])
    assert priced.time.source == "measured"
    assert priced.time.median_us == pytest.approx(factor * burst_us(ASKED), rel=0.01)
