"""Figures in files: the kinds of files, what is the same in all of them, and text that fits a figure's width."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from sampling.files.disk import require_suffix, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
DOTS_PER_INCH = 150
CHARACTER_WIDTH = 0.53
"""Mean width of a character of DejaVu Sans, matplotlib's own font, over the font's size."""
BOLD_WIDTH = 0.64


def save_figure(draw: Callable[[], Figure], path: Path, *, title: str) -> None:
    """Write what `draw` returns to a .svg or .png file, the same bytes each time; UserError for another suffix.

    Text is drawn as it stands: a `$` in a name starts no formula.
    """
    require_suffix(path, SUFFIXES)
    from matplotlib import rc_context

    suffix = path.suffix.lower()
    content = BytesIO()
    with rc_context(
        {"svg.hashsalt": "steptime", "svg.fonttype": "none", "text.parse_math": False, "font.family": ["sans-serif"]}
    ):
        metadata = {"Date": None, "Title": title} if suffix == ".svg" else {"Title": title}
        draw().savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
    write_atomically(path, content.getvalue())


def lines_within(text: str, *, inches: float, points: float, character_width: float = CHARACTER_WIDTH) -> list[str]:
    """The text broken into the lines that a width leaves room for."""
    from textwrap import wrap

    return wrap(text, max(8, int(inches * 72 / (points * character_width))))
