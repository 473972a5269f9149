"""Settings of a job are read from texts and mappings, and what is wrong is named."""

import pytest

from predict.ledger.job_settings import JobSettings, job_settings
from sampling.errors import UserError


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["restart_min=-1"], "restart_min: -1 is out of range"),
        (["gpu_hours_a_failure=-5"], "gpu_hours_a_failure: -5 is out of range"),
        (["detect_mn=3"], "did you mean 'detect_min'"),
        (["save=sometimes"], "give one of sync, async"),
        (["fast"], "write KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_named(given: list[str], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        job_settings(given)


def test_settings_are_read_from_texts_and_mappings() -> None:
    assert job_settings(["detect_min=3", "save=sync"]) == job_settings({"detect_min": 3.0, "save": "sync"})
    assert job_settings([]) == JobSettings()
    assert job_settings({"gpu_hours_a_failure": 100}).failure_factor == 1.0
