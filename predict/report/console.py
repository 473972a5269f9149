"""Print a rendered report on stdout: coloured in a terminal, plain in a pipe or with NO_COLOR."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_WIDTH = 140


def show(report: RenderableType) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(report)
