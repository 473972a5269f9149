"""A step's Chrome trace has every action, whose operators and waits add up to it, on streams whose slices follow each other."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from predict import one_batch
from predict.cli import main
from predict.reports.traces.chrome import step_trace
from predict.reports.traces.pieces import Pieces
from predict.step.priced_rank import BUCKETS

RUNS = Path("configs/runs")
OVERRIDES = {
    "demo.yml": [],
    "llama3-70b-64xh100.yml": ["batch.global=16"],
    "deepseek-v3-1024xh100.yml": ["batch.global=512"],
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_operators_and_waits_add_up_to_each_action(name: str) -> None:
    prediction = one_batch(RUNS / name, OVERRIDES[name])
    pieces = Pieces(prediction.prices)
    for rank in prediction.ranks:
        for chunk in rank.chunks:
            bucket = getattr(chunk, BUCKETS["F"])
            found = pieces.of(bucket)
            added = sum(piece.wait_us if piece.item.beside else piece.time_us for piece in found)
            assert added == pytest.approx(bucket.median_us)
            assert max(piece.end_us for piece in found) <= bucket.median_us * (1 + 1e-9)


@pytest.mark.parametrize("name", OVERRIDES)
def test_slices_of_a_stream_follow_each_other_and_arrows_meet(name: str) -> None:
    prediction = one_batch(RUNS / name, OVERRIDES[name])
    trace, detailed = step_trace(prediction)
    assert detailed == len(prediction.timeline.order.actions[0])
    streams: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    ends: dict[str, list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            streams[event["pid"], event["tid"]].append(event)
        elif event["ph"] in "sf":
            ends[event["id"]].append(event["ph"])
    assert {rank for rank, _ in streams} == set(range(prediction.run.plan.pp))
    for events in streams.values():
        for before, after in itertools.pairwise(events):
            if before["cat"] not in ("pp", "dp"):  # a send need not wait for the one before it
                assert before["ts"] + before["dur"] <= after["ts"] + 0.01
    assert ends
    assert all(found == ["s", "f"] for found in ends.values())
    last = max(event["ts"] + event["dur"] for events in streams.values() for event in events)
    assert last == pytest.approx(
        max(
            float(end) + rank.after_us
            for end, rank in zip(prediction.timeline.rank_ends, prediction.ranks, strict=True)
        ),
        rel=1e-6,
    )


def test_the_command_compresses_and_refuses_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(RUNS / "demo.yml")
    assert main(["trace", config, "-o", str(tmp_path / "step.json.gz")]) == 0
    assert json.loads(gzip.decompress((tmp_path / "step.json.gz").read_bytes()))["otherData"]["run"] == "demo"
    assert main(["trace", config, "-o", str(tmp_path / "step.txt")]) == 2
    assert main(["trace", config, "--every-gpu", "-o", str(tmp_path / "step.json")]) == 2
    assert "--every-gpu" in capsys.readouterr().err
