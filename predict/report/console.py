"""Print a rendered report on stdout: coloured in a terminal, plain in a pipe or with NO_COLOR."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 140


def show(report: RenderableType) -> None:
    _console().print(report)


def width() -> int:
    """Columns that `show` has."""
    return _console().width


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
