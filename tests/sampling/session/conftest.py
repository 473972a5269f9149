"""Sessions that do not wait for the disk: a kill, unlike a power failure, loses nothing that was written."""

import pytest


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
