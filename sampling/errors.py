"""The errors a user can cause, each with the exit code that a command ends with.

UserError               2  usage or config
├── ConfigError         2  every fault of a config in one message
├── SkippedError        2  a call that cannot be timed here; the sampler reports it and goes on
├── SamplesError        3  samples or regressors missing, stale or not matching
└── InfeasibleError     4  the plan does not fit, or no valid plan exists
    └── CheckedError    4  it does not fit, as the answer on stdout says already
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec

Given = ParamSpec("Given")
"""What a check is given."""

LONGEST_LINE = 2_000
MOST_LINES = 60
"""Characters of a line, and lines, that a message has at most: names and values in it may come from any file."""


class UserError(Exception):
    """An error that the user can fix; the message gives what, where, the value and the fix."""

    exit_code = 2

    def __str__(self) -> str:
        """The message as printable text of bounded length, whatever the file holds that it speaks of."""
        lines = super().__str__().split("\n")
        shown = [_printable(line) for line in lines[:MOST_LINES]]
        return "\n".join([*shown, *([f"and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else [])])


def _printable(line: str) -> str:
    """The line without control characters, which a terminal would obey, and without its middle if it is very long."""
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"
    return line if line.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)


class ConfigError(UserError):
    """A config that cannot be used; the message lists every fault at once."""


class SkippedError(UserError):
    """A call that this machine or its software cannot run; the message is shown in place of its rows."""


class SamplesError(UserError):
    """Samples or regressors that are missing, from another machine, or out of date."""

    exit_code = 3


class InfeasibleError(UserError):
    """A plan that cannot run as asked."""

    exit_code = 4


class CheckedError(InfeasibleError):
    """A plan of which the answer on stdout says already that it does not fit."""


class Checks:
    """Several checks whose errors are reported together: the errors of each `with checks.one():` are raised as one, a line each, when
    `with Checks() as checks:` is left, with the UserError by which it is left, if any. The raised error has the class of the first."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []

    def __enter__(self) -> Checks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.errors or not isinstance(error, UserError | None):
            return
        found = [*self.errors, *([error] if error else [])]
        raise type(found[0])("\n".join(dict.fromkeys(map(str, found)))) from None

    @contextmanager
    def one(self) -> Iterator[None]:
        """One check; a UserError in it is kept, and the next check follows."""
        try:
            yield
        except UserError as error:
            self.errors.append(error)

    def run(self, check: Callable[Given, object], *given: Given.args, **named: Given.kwargs) -> None:
        """One check that is a function, with what it is given."""
        with self.one():
            check(*given, **named)


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Put the option that named a file in front of each line of a UserError about it."""
    try:
        yield
    except UserError as error:
        raise type(error)("\n".join(f"{option}: {line}" for line in str(error).splitlines())) from None


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, UserError)
"""Errors of reading a line, or an event, that no session wrote whole."""


def in_one_line(error: BaseException) -> str:
    """The class of an error and the first line of its message: torch adds pages of advice below."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
