"""Schedules as `predict schedule --json` tells them, and what most of its tests ask for."""

from __future__ import annotations

from typing import Any

from sampling.files.places import CONFIGS
from tests.predict.command import Command

DEMO = str(CONFIGS / "runs" / "demo.yml")
EVEN = ["--pp", "4", "--microbatches", "8"]


def schedules(command: Command, *options: str) -> list[dict[str, Any]]:
    content = command.json("schedule", *options)
    assert content["version"] == 1
    return list(content["schedules"])
