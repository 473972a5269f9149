"""transformers' trainer_state.json."""

import json
from pathlib import Path

import pytest

from sampling.errors import UserError
from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_trainer_state_states_its_summary(tmp_path: Path) -> None:
    history = [
        {"loss": 2.1, "step": 10},
        {"step": 100, "train_runtime": 200.0, "train_samples_per_second": 4.0, "train_steps_per_second": 0.5},
    ]
    state = json.dumps({"log_history": history, "max_steps": 100}, indent=2)
    assert steps_us(log(tmp_path, state, "trainer_state.json")) == [(100, 2_000_000)]
    untimed = json.dumps({"log_history": history[:1]})
    with pytest.raises(UserError, match=r"trainer_state\.json's, and state losses without times"):
        log(tmp_path, untimed, "trainer_state.json")
