"""The surroundings of every command of the three packages: its exit code, and a stdout that is closed, full or narrow.

0 ok, 1 bug, 2 usage or config, 3 samples, 4 infeasible; 130 interrupted; 141 stdout was closed before all was written
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import CheckedError, UserError
from sampling.extras import naming_extras
from sampling.wrapping import wrapped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

INTERRUPTED = 128 + signal.SIGINT
STDOUT_CLOSED = 128 + 13
"""The exit code by which a shell reports a program that SIGPIPE (13) ended, which is how `yes | head -1` ends."""
OF_THE_PATH = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Errors of a path that a user gave, such as one in a folder that they may not enter, wherever a command meets it."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


WIDTH_VARIABLE = "STEPTIME_WIDTH"
"""Variable of the environment with the columns of an answer, in place of the terminal's."""


def exit_code_of(work: Callable[[], int], *, interrupted: str = "interrupted", as_json: bool = False) -> int:
    """The exit code of a command's `work`, which parses its arguments too; an error of the user's goes to stderr, and with `as_json` to
    stdout as JSON too, where a program looks for the result.

    `interrupted` is what Ctrl-C or a SIGTERM leaves behind, in words; '' for a process whose parent says it.
    """
    if sys.stdout is None:  # closed before Python started
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    try:
        try:
            with naming_extras(), sigterm_interrupts() if interrupted else nullcontext():
                return work()
        except UserError as error:
            log(f"error: {error}")
            if as_json and not isinstance(error, CheckedError):
                print(json.dumps(error_json(error), indent=1))
            return error.exit_code
        except KeyboardInterrupt:
            if interrupted:
                log(interrupted)
            return INTERRUPTED
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise
        _drop_stdout()
        return STDOUT_CLOSED
    except OSError as error:
        if error.filename is not None and error.errno in OF_THE_PATH:
            log(f"error: {error.filename}: {error.strerror}; check the path and its permissions")
            return UserError.exit_code
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        _drop_stdout()
        log(f"error: stdout: {error.strerror}; make room, or send the result elsewhere")
        return UserError.exit_code


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """A SIGTERM interrupts the block as Ctrl-C does, so that it ends its ranks and workers, and removes its folders."""
    in_charge = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not in_charge:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def error_json(error: UserError) -> dict[str, Any]:
    """An error of the user's as JSON: its kind, each of its faults, and the exit code."""
    return {
        "version": 1,
        "error": {"kind": type(error).__name__, "faults": str(error).split("\n"), "exit_code": error.exit_code},
    }


def console(*, piped_width: int) -> Console:
    """A console on stdout: coloured in a terminal, plain and `piped_width` columns wide in a pipe or file."""
    from rich.console import Console

    width = given_width() or (None if sys.stdout.isatty() else piped_width)
    return Console(width=width, highlight=False, emoji=False)


def given_width() -> int | None:
    """The columns that --width gave."""
    given = os.environ.get(WIDTH_VARIABLE, "")
    return int(given) if given.isdecimal() and int(given) else None


def show(report: RenderableType, *, piped_width: int) -> None:
    """Print on stdout, without blanks at the ends of lines."""
    place = console(piped_width=piped_width)
    with place.capture() as shown:
        place.print(report)
    sys.stdout.write(re.sub(" +$", "", shown.get(), flags=re.MULTILINE))


def log(text: str) -> None:
    """Print a note, a warning or an error on stderr, in lines no longer than --width or the terminal."""
    width = given_width()
    if width is None and sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    print(wrapped(text, width) if width else text, file=sys.stderr, flush=True)


def _stdout_is_closed() -> bool:
    """Whether nobody reads the pipe that stdout is. A failed write does not show it: an unbuffered one is lost."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are reported unasked
    except (OSError, ValueError):
        return False
    return bool(poll.poll(0))


def _drop_stdout() -> None:
    """Keep Python from complaining about stdout again on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
