"""The command `predict` for tests."""

from __future__ import annotations

import pytest

from tests.predict.command import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys=capsys)
