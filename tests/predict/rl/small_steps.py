"""A small RL config and its steps."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import predict
from predict.rl.phases import Phase
from predict.rl.step import RlStep

SMALL = """\
model: llama3-8b
cluster: {hardware: h100-sxm, nodes: 1, gpus_per_node: 8}
plan: {dp: 8, zero: 1}
precision: bf16
rl: {prompts: 16, n: 4, prompt: "constant:64", prompt_max: 64, response: "constant:128", response_max: 128, mini_batch: 8}
"""


@cache
def step_of(path: Path, *settings: str) -> RlStep:
    return predict.rl_step(path, settings)


def phase_of(step: RlStep, name: str) -> Phase:
    phase = step.phase(name)
    assert phase is not None
    return phase


def median(step: RlStep, name: str) -> float:
    return phase_of(step, name).time.median_us if name != "step" else step.time.median_us
