"""What commands print."""

from __future__ import annotations

import pytest

from predict.cli import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The answer of a command that succeeds."""
    assert main(list(arguments)) == 0
    return capsys.readouterr().out
