"""The parser of every command: argparse's, which reports all faults of a command line at once, each with its fix."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from sampling.command_line import log
from sampling.errors import UserError
from sampling.files.faults import did_you_mean

REQUIRED = "the following arguments are required: "
"""Start of argparse's words on operands and options that are missing; their names follow."""
EXPLICIT = re.compile(r"ignored explicit argument (.*)")
TOGETHER = re.compile(r"not allowed with argument (.*)")
AMBIGUOUS = re.compile(r"ambiguous option: (\S+) could match (.*)")
"""argparse's words on an option that takes no value, on two that exclude each other, and on the start of several."""
NUMBERS: Mapping[Any, str] = {int: "a whole number", float: "a number"}
MOST_LISTED = 6
"""Names in a list."""
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
        self.commands_with: Callable[[str], Sequence[str]] = lambda option: ()  # other commands that have an option
        self._faults: list[str] = []
        self._words: list[str] = []
        self._below_zero: list[str] = []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        self._words = words = list(sys.argv[1:] if args is None else args)
        self._faults, self._below_zero = [], []
        unknown: list[str] = []
        try:
            namespace, unknown = super().parse_known_args(words, namespace)
        except argparse.ArgumentError as error:
            self._faults.append(_in_own_words(error))
        unknown = self._taken_behind_options(namespace, unknown)
        for words_of_one in _by_option(word for word in unknown if word not in self._below_zero):
            self._faults.append(self._not_expected(words_of_one))
        if self._faults and (len(self._faults) == len(self._below_zero) or JSON in words):
            raise UserError("\n".join(self._faults))
        if self._faults:
            super().error("\n".join(self._faults))
        return namespace, []

    def _taken_behind_options(self, namespace: Any, unknown: list[str]) -> list[str]:
        """The unknown words without operands that stand behind an option, as in `compare a.yml --json b.yml`, which argparse does not
        take for more of the operand before it."""
        several = [each for each in self._get_positional_actions() if each.nargs == argparse.ONE_OR_MORE]
        taken = getattr(namespace, several[0].dest, None) if len(several) == 1 else None
        if not taken or not unknown or any(word.startswith("-") for word in unknown):
            return unknown
        more = self._get_values(several[0], unknown)
        if more is not argparse.SUPPRESS:
            taken += more
        return []

    def _not_expected(self, words: Sequence[str]) -> str:
        """The fault of words that are neither an option of the command, with its values, nor an operand."""
        option = words[0].partition("=")[0]
        said = f"{' '.join(words)}: "
        if not option.startswith("-"):
            return f"{said}one too many for `{self.prog}`; omit it"
        said += f"`{self.prog}` has no option {option}"
        if elsewhere := self.commands_with(option):
            return f"{said}, which is of {_listed(elsewhere)}; omit it"
        return said + (did_you_mean(option, self._option_string_actions) or "; omit it")

    def error(self, message: str) -> NoReturn:
        """A fault that argparse finds: a missing operand is kept, so that what follows is looked at; another one ends the parsing."""
        if message.startswith(REQUIRED):
            self._faults.append(self._missing(message.removeprefix(REQUIRED).split(", ")))
            return  # type: ignore[misc]
        raise argparse.ArgumentError(None, message)

    def _missing(self, names: Sequence[str]) -> str:
        """The fault of operands and options that are required and missing, with the shortest line that has them all."""
        required = [each for each in self._actions if each.required]
        missing = [each for each in required if argparse._get_action_name(each) in names]
        line = " ".join([self.prog, *(_written(each) for each in sorted(required, key=_is_option))])
        fault = f"{_listed([_name(each) for each in missing])}: missing; write `{line}`"
        if any(isinstance(each, argparse._SubParsersAction) for each in missing):
            fault += f"; `{self.prog} --help` lists them"
        return fault

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stderr:
            log(message.rstrip("\n"))
        else:
            super()._print_message(message, file)

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        """The number of values of an option; where it lacks its value, that is kept as a fault."""
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError:
            self._faults.append(self._lacking(action))
            return 0

    def _lacking(self, action: argparse.Action) -> str:
        """The fault of an option without its value, or before one below zero."""
        for option, value in pairwise(self._words):
            if option in action.option_strings and BELOW_ZERO.fullmatch(value):
                self._below_zero.append(value)
                return f"{option}: {value} is below 0; give a value above 0"
        return f"{_name(action)}: lacks its value; write {_written(action)}"

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The values of an option or operand, none where they are wrong, which is kept as a fault. Without its command nothing goes on."""
        if isinstance(action, argparse._SubParsersAction):
            return super()._get_values(action, arg_strings)
        if not arg_strings and action.nargs in (None, argparse.ONE_OR_MORE):
            return argparse.SUPPRESS  # its value is lacking
        if "" in arg_strings:  # as a shell's variable that is not set leaves it; it would count as none given
            self._faults.append(f"{_name(action)}: its value is empty; give one")
            return argparse.SUPPRESS
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            self._faults.append(str(error))
            return argparse.SUPPRESS

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value that a word gives; ArgumentError for one that its option does not take."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            kind = NUMBERS.get(action.type)
            problem = f"{arg_string!r} is not {kind}; give {kind}, without a unit" if kind else error.message
            raise argparse.ArgumentError(None, f"{_name(action)}: {problem}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """ArgumentError for a value, or a command, that is not one of the choices."""
        if action.choices is None or value in action.choices:
            return
        near = did_you_mean(value, action.choices)
        if isinstance(action, argparse._SubParsersAction):
            problem = f"{value!r} is not a command{near or ';'} `{self.prog} --help` lists them"
        else:
            problem = f"{value!r} is not known; give one of {', '.join(map(str, action.choices))}{near}"
        raise argparse.ArgumentError(None, f"{_name(action)}: {problem}")


def _is_option(action: argparse.Action) -> bool:
    return bool(action.option_strings)


def _name(action: argparse.Action) -> str:
    """The option in its longest form, or the operand's name."""
    return max(action.option_strings, key=len, default=str(action.metavar or action.dest))


def _written(action: argparse.Action) -> str:
    """The option with its value, or the operand, as a usage line has it."""
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
    return f"{_name(action)} {value}" if _is_option(action) else value


def _in_own_words(error: argparse.ArgumentError) -> str:
    """A fault that ends the parsing: of an option that takes no value, of two that exclude each other, of the start of several."""
    if found := EXPLICIT.fullmatch(error.message):
        return f"{error.argument_name}: takes no value, but {found[1]} is given; omit that"
    if found := TOGETHER.fullmatch(error.message):
        return f"{error.argument_name}: cannot be combined with {found[1]}; omit one of them"
    if found := AMBIGUOUS.fullmatch(error.message):
        return f"{found[1]}: is the start of {found[2]}; write one of them in full"
    return str(error)


def _listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    first, more = names[:MOST_LISTED], len(names) - MOST_LISTED
    if more > 0:
        return f"{', '.join(first)} and {more} more"
    return " and ".join(filter(None, (", ".join(first[:-1]), first[-1])))


def _by_option(unknown: Iterable[str]) -> list[list[str]]:
    """Unknown words, each option with the words behind it."""
    found: list[list[str]] = []
    for word in unknown:
        if word.startswith("-") or not found:
            found.append([])
        found[-1].append(word)
    return found
