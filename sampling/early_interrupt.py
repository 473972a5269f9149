"""Ctrl-C while a command still imports its modules ends it in one line, as it does later (`sampling.command_line.exit_code_of`).

Modules that commands start with import this one before all others. A program that imports the packages for itself keeps its own ways.
"""

import sys
from collections.abc import Sequence
from types import TracebackType

PACKAGES = ("predict", "sampling", "regressors")
SCRIPT = "predict"
"""The installed script's name."""


def is_command(whole: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether the command line `whole`, which ends with the program's own `arguments`, started one of our commands.

    Not where it ends otherwise: a program may replace sys.argv, and a worker of a pool has its parent's.
    """
    start = len(whole) - len(arguments)
    if start < 1 or whole[start:] != arguments:
        return False
    started = whole[start - 1]
    if whole[start - 2 : start - 1] == ["-m"]:
        return started.partition(".")[0] in PACKAGES
    return started.rpartition("/")[2] == SCRIPT


def in_a_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error; of an interrupt no more than that it was one."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if is_command(sys.orig_argv, sys.argv[1:]):
    sys.excepthook = in_a_line
