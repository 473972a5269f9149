"""Schedules as `predict schedule --json` tells them, and what most of its tests ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from predict.cli import main

ROOT = Path(__file__).resolve().parents[3]


DEMO = str(ROOT / "configs" / "runs" / "demo.yml")


EVEN = ["--pp", "4", "--microbatches", "8"]


def schedules(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["schedule", *options, "--json"]) == code
    content = json.loads(capsys.readouterr().out)
    assert content["version"] == 1
    return list(content["schedules"])
