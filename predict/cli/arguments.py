"""The parser of every command of `predict`: argparse's, which reports all faults of a command line at once."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from sampling.command_line import log
from sampling.errors import UserError
from sampling.files.faults import did_you_mean

INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
NO_NUMBER = re.compile(r"argument (?:\S+/)?(--[\w-]+): invalid (int|float) value: (.*)")
NUMBERS = {"int": "a whole number", "float": "a number"}
NO_VALUE = re.compile(r"argument (?:\S+/)?(--?[\w-]+): expected (?:one|at least one) argument")
BELOW_ZERO = re.compile(r"-[\d.]\S*")
"""A value such as -3s, which argparse takes for an option."""

JSON = "--json"
"""The option with which every error is JSON too: a fault of the command line is then an error like any other, without the usage."""


class Parser(argparse.ArgumentParser):
    """argparse's parser, which goes on after a fault, so that unknown options, bad values and missing operands are one message.

    Unknown options are the subcommand's fault, so that its options are the ones to compare with.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.exit_on_error = False  # faults come here as exceptions, and are reported together
        self._faults: list[str] = []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        self._faults = []
        unknown: list[str] = []
        try:
            namespace, unknown = super().parse_known_args(words, namespace)
        except argparse.ArgumentError as error:
            self._faults.append(str(error))
        unknown = self._taken_behind_options(namespace, unknown)
        below_zero = dict(_below_zero(self._faults, words))
        faults = [
            below_zero.get(fault) or _no_number(fault) or fault + _nearest_choice(fault) for fault in self._faults
        ]
        taken = {value for value in words if BELOW_ZERO.fullmatch(value)} if below_zero else set()
        for words_of_one in _by_option(word for word in unknown if word not in taken):
            near = did_you_mean(words_of_one[0].partition("=")[0], self._option_string_actions)
            faults.append(f"unrecognized arguments: {' '.join(words_of_one)}{near}")
        if faults and (len(faults) == len(below_zero) or JSON in words):
            raise UserError("\n".join(faults))
        if faults:
            super().error("\n".join(faults))
        return namespace, []

    def _taken_behind_options(self, namespace: Any, unknown: list[str]) -> list[str]:
        """The unknown words without operands that stand behind an option, as in `compare a.yml --json b.yml`, which argparse does not
        take for more of the operand before it."""
        several = [each for each in self._get_positional_actions() if each.nargs == argparse.ONE_OR_MORE]
        taken = getattr(namespace, several[0].dest, None) if len(several) == 1 else None
        if taken is None or any(word.startswith("-") for word in unknown):
            return unknown
        taken += [self._get_value(several[0], word) for word in unknown]
        return []

    def error(self, message: str) -> NoReturn:
        """A fault that argparse finds: a missing operand is kept, so that what follows is looked at; another one ends the parsing."""
        if message.startswith("the following arguments are required"):
            self._faults.append(message)
            return  # type: ignore[misc]
        raise argparse.ArgumentError(None, message)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stderr:
            log(message.rstrip("\n"))
        else:
            super()._print_message(message, file)

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        """The number of values of an option; where it lacks its value, that is kept as a fault."""
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError as error:
            self._faults.append(str(error))
            return 0

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The values of an option or operand, none where they are wrong, which is kept as a fault. Without its command nothing goes on."""
        if isinstance(action, argparse._SubParsersAction):
            return super()._get_values(action, arg_strings)
        if not arg_strings and action.nargs in (None, argparse.ONE_OR_MORE):
            return argparse.SUPPRESS  # its value is lacking
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            self._faults.append(str(error))
            return argparse.SUPPRESS


def _below_zero(faults: Iterable[str], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each fault that a value below zero causes → what to say of it."""
    for fault in faults:
        lacking = NO_VALUE.search(fault)
        for option, value in pairwise(words):
            if lacking and option == lacking[1] and BELOW_ZERO.fullmatch(value):
                yield fault, f"{option}: {value} is below 0; give a value above 0"


def _no_number(fault: str) -> str:
    """The words on a value that is not the number that its option takes; '' for another fault."""
    found = NO_NUMBER.search(fault)
    return (
        f"{found[1]}: {found[3]} is not {NUMBERS[found[2]]}; give {NUMBERS[found[2]]}, without a unit" if found else ""
    )


def _nearest_choice(fault: str) -> str:
    invalid = INVALID_CHOICE.search(fault)
    return did_you_mean(invalid[1], re.findall(r"'([^']*)'", invalid[2])) if invalid else ""


def _by_option(unknown: Iterable[str]) -> list[list[str]]:
    """Unknown words, each option with the words behind it."""
    found: list[list[str]] = []
    for word in unknown:
        if word.startswith("-") or not found:
            found.append([])
        found[-1].append(word)
    return found
