"""A small RL config and its steps."""

from functools import cache
from pathlib import Path

import predict
from predict.rl.phases import Phase
from predict.rl.step import RlStep

SMALL = Path(__file__).with_name("small.yml")


@cache
def step_of(*settings: str) -> RlStep:
    return predict.rl_step(SMALL, settings)


def phase_of(step: RlStep, name: str) -> Phase:
    phase = step.phase(name)
    assert phase is not None
    return phase


def median(step: RlStep, name: str) -> float:
    return phase_of(step, name).time.median_us if name != "step" else step.time.median_us
