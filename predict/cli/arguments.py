"""The parser of every command of `predict`: argparse's, which names the option or command that a misspelt one stands for."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

from sampling.errors import UserError
from sampling.files.faults import did_you_mean

INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
NO_VALUE = re.compile(r"argument (?:\S+/)?(--?[\w-]+): expected (?:one|at least one) argument")
BELOW_ZERO = re.compile(r"-[\d.]\S*")
"""A value such as -3s, which argparse takes for an option."""


class Parser(argparse.ArgumentParser):
    """argparse's parser; unknown options are the subcommand's fault, so that its options are the ones to compare with."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        self._asked = list(sys.argv[1:] if args is None else args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if lacking := NO_VALUE.search(message):
            for option, value in pairwise(self._asked):
                if option == lacking[1] and BELOW_ZERO.fullmatch(value):
                    raise UserError(f"{option}: {value} is below 0; give a value above 0")
        if invalid := INVALID_CHOICE.search(message):
            message += did_you_mean(invalid[1], re.findall(r"'([^']*)'", invalid[2]))
        super().error(message)
