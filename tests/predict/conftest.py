"""The command `predict` for tests."""

import pytest

from tests.predict.command import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys=capsys)
