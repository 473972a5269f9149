"""Lines of a text: each ends at a blank, but within neither a command in backticks nor a figure with its unit."""

import re
from itertools import pairwise

WHOLE = re.compile(r"`[^`\n]*`|(?<=[\d×±÷]) (?=[^\s\d])|(?<=[×±÷]) (?=\d)")
GLUE = "\N{NO-BREAK SPACE}"
HANG = 2
"""Columns by which a further line stands to the right of its first."""


def line_starts(text: str, width: int, *, label: int = 0) -> list[int]:
    """The places at which further lines of a text in one line start. `label` is the number of its first characters under which nothing
    stands; a further line stands under what follows them, or without a label under the text by `hang_of`."""
    hang = hang_of(text, label)
    glued = WHOLE.sub(lambda found: found[0].replace(" ", GLUE) if len(found[0]) <= width - hang else found[0], text)
    first = label or hang - HANG
    start, room, starts = 0, width, []
    for word in re.finditer("[^ ]+", glued):
        while word.end() > start + room:
            start = word.start() if word.start() > max(start, first) else start + room
            room = max(1, width - hang)
            starts.append(start)
    return starts


def hang_of(text: str, label: int = 0) -> int:
    """The column at which further lines of a text stand."""
    return label or len(text) - len(text.lstrip()) + HANG


def wrapped(text: str, width: int) -> str:
    """A text whose lines are no longer than `width`."""
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, width))


def _pieces(line: str, width: int) -> list[str]:
    bounds = [0, *line_starts(line, width), len(line)]
    blanks = " " * hang_of(line)
    return [(blanks if start else "") + line[start:end].rstrip() for start, end in pairwise(bounds)]
