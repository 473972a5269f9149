"""The run that tests of calibrations fit to, and its predicted step."""

from predict import estimate, load
from predict.run.training_run import TrainingRun

CONFIG = "configs/runs/llama3-70b-64xh100.yml"


def run(*overrides: str) -> TrainingRun:
    return load(CONFIG, overrides)


def step_us(one: TrainingRun) -> float:
    return estimate(one, require_fit=False).median_us
