"""One idea stands in few files: edited in a copy of the project, it changes what every kind of config answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.project_copy import ROOT, RUN, run_modules

BESIDE = ("sampling", "regressors", "configs", "data", "pyproject.toml")
ONE_BATCH = ("predict", "one-batch", RUN, "--json")
SERVING = ("predict", "serving", "configs/serving/llama3-8b-h100.yml", "--json")
RL_STEP = ("predict", "rl-step", "configs/rl/qwen3-30b-a3b-grpo.yml", "--json")
Edits = Mapping[str, tuple[str, str]]
"""File → the text in it that is replaced, and by what."""


def edited(place: Path, edits: Edits) -> Path:
    """The project with `predict` copied and edited."""
    for name in BESIDE:
        (place / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "predict", place / "predict", ignore=shutil.ignore_patterns("__pycache__"))
    for file, (before, after) in edits.items():
        text = (place / file).read_text()
        assert text.count(before) == 1, file
        (place / file).write_text(text.replace(before, after))
    return place


def answers(project: Path, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
    return [json.loads(output) for output in run_modules(project, *commands)]


@pytest.mark.usefixtures("starts_warm")
def test_the_rule_of_an_interval_is_one_file(tmp_path: Path) -> None:
    """Widths that independent causes leave, doubled: wider steps, latencies and RL steps about the same medians."""
    edits = {"predict/interval.py": ("return math.hypot(*half_widths)", "return 2 * math.hypot(*half_widths)")}
    commands = (ONE_BATCH, SERVING, RL_STEP)
    times = [
        (step["step_time_us"], {"median": (e2e := served["loads"][0]["e2e_us"])["mean"], **e2e}, rl["step_us"])
        for step, served, rl in (answers(ROOT, *commands), answers(edited(tmp_path, edits), *commands))
    ]
    for old, new in zip(*times, strict=True):
        assert new["median"] == old["median"]
        assert new["low"] < old["low"] < old["high"] < new["high"]


@pytest.mark.usefixtures("starts_warm")
def test_the_price_of_overlapped_transfers_between_stages_is_one_file(tmp_path: Path) -> None:
    """Each ten times as long: the step, its interval, its ledger and the timeline of `predict schedule` follow."""
    edits = {
        "predict/step/priced_rank.py": (
            "p2p=_edges(of_chunks[4], held, placement)",
            "p2p=10 * _edges(of_chunks[4], held, placement)",
        )
    }
    commands = (ONE_BATCH, ("predict", "schedule", RUN, "--json"))
    (step, timeline), (slow_step, slow_timeline) = answers(ROOT, *commands), answers(edited(tmp_path, edits), *commands)
    for bound in ("low", "median", "high"):
        assert slow_step["step_time_us"][bound] > step["step_time_us"][bound]
    assert slow_step["breakdown_us"]["p2p"] > 5 * step["breakdown_us"]["p2p"] > 0
    assert slow_timeline["schedules"][0]["makespan"] > timeline["schedules"][0]["makespan"]
