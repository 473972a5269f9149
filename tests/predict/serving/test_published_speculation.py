"""Published gains of speculative decoding lie within the predicted intervals."""

from __future__ import annotations

import csv

import pytest

from predict.serving.config import load_serving
from predict.serving.stepper import stepper
from sampling.files.places import SHIPPED_DATA
from tests.predict.serving.servers import CONFIG

with (SHIPPED_DATA / "published" / "speculation.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row_id"])
def test_a_published_gain_lies_within_its_interval(row: dict[str, str]) -> None:
    keys = [
        *(f"{key}={row[key]}" for key in ("model", "hardware")),
        *(f"placement.{key}={row[key]}" for key in ("tp", "precision")),
        *(f"speculation.{key}={row[key]}" for key in ("kind", "tokens")),
        f"engine.max_num_seqs={row['requests']}",
        "load.prompt=500",
    ]
    server = load_serving(CONFIG, keys).server
    gain = stepper(server).paying(int(row["context"])).speedups[-1]
    low, high = (float(row[key] or row["speedup"]) for key in ("speedup_low", "speedup_high"))
    assert gain.low <= high and low <= gain.high
    assert row["source"]
