"""Print a rendered report on stdout: coloured in a terminal, plain in a pipe or with NO_COLOR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sampling.command_line import console

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_WIDTH = 140


def show(report: RenderableType) -> None:
    console(piped_width=PIPE_WIDTH).print(report)


def width() -> int:
    """Columns that `show` has."""
    return console(piped_width=PIPE_WIDTH).width
