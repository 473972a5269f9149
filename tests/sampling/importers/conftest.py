"""Where the published files lie that some tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import SHARED


@pytest.fixture(scope="session")
def published() -> Path:
    return SHARED / "data"
