"""The command `predict`, run in this process: what it prints, and how it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from predict.cli import main


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """Runs a command line, whose words are given one by one."""

    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str, code: int = 0) -> pytest.CaptureResult[str]:
        """Both outputs of a command that ends with `code`; nothing that was printed before it."""
        self.capsys.readouterr()
        assert main(list(words)) == code
        return self.capsys.readouterr()

    def text(self, *words: str) -> str:
        """The answer of a command that succeeds."""
        return self.run(*words).out

    def json(self, *words: str) -> Any:
        """The same as JSON."""
        return json.loads(self.text(*words, "--json"))

    def notes(self, *words: str) -> str:
        """What a command that succeeds writes beside its answer."""
        return self.run(*words).err

    def refused(self, *words: str, code: int = 2) -> str:
        """The message of a command that does not succeed."""
        return self.run(*words, code=code).err
