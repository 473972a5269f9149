"""Tests of this folder compare with tables and other tools' results beside the clone; without them none is collected."""

from pathlib import Path

from tests.oracles.shared import SHARED


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name.startswith("test_") and not SHARED.is_dir() else None
