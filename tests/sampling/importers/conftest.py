"""Where the published files lie that some tests read; those tests skip where they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

PUBLISHED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


@pytest.fixture(scope="session")
def published() -> Path:
    if not PUBLISHED.is_dir():
        pytest.skip(f"{PUBLISHED} is missing")
    return PUBLISHED
