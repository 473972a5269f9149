"""The small RL config as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.predict.rl.small_steps import SMALL


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rl") / "small.yml"
    path.write_text(SMALL)
    return path
