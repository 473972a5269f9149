"""The parser of every command of `predict`: argparse's, which names the option or command that a misspelt one stands for."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from sampling.files.faults import did_you_mean

INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """argparse's parser; unknown options are the subcommand's fault, so that its options are the ones to compare with."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if invalid := INVALID_CHOICE.search(message):
            message += did_you_mean(invalid[1], re.findall(r"'([^']*)'", invalid[2]))
        super().error(message)
