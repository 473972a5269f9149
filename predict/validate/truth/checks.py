"""The header and the rows of a truth table held against the declaration of its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from predict.validate.truth.columns import COLUMNS, OTHER_NAMES, UNREAD_NAMES
from sampling.files.faults import did_you_mean, shown
from sampling.files.keys import Key

MOST_UNKNOWN = 10
"""Unknown columns that are reported."""
LONGEST_NUMBER = 100
"""Characters of a number."""


def faults_of_header(names: Sequence[str]) -> Iterator[str]:
    """Unknown columns, those given twice, and those that every row needs and the table has not."""
    known = [*COLUMNS, *OTHER_NAMES, *UNREAD_NAMES]
    unknown = [name for name in names if name not in known and not name.startswith("_")]
    for name in unknown[:MOST_UNKNOWN]:
        yield f"unknown column {shown(name)}{did_you_mean(name, known)}"
    if len(unknown) > MOST_UNKNOWN:
        yield f"{len(unknown) - MOST_UNKNOWN} more unknown columns"
    own = [OTHER_NAMES.get(name, name) for name in names]
    for name, count in Counter(own).items():
        if count > 1 and name in COLUMNS:
            meant = [given for given, column in zip(names, own, strict=True) if column == name]
            yield f"column {name} is given {count} times ({', '.join(meant)}); keep one"
    if lacking := [key.name for key in COLUMNS.values() if key.required and key.name not in own]:
        yield f"lacks the columns {', '.join(lacking)}, which every row needs"


def faults_of_cells(cells: Mapping[str, str]) -> Iterator[str]:
    """Each cell that is not what its column holds, and each blank one that the row needs; `cells` are by our names."""
    for name, key in COLUMNS.items():
        text = cells.get(name, "").strip()
        if text and (problem := key.malformed(value_of(key, text))):
            yield f"{name}: {problem}"
        if key.required and not text:
            yield f"{name}: not stated; give {key.allowed()}"


def number_of(text: str) -> float | None:
    """The number that a cell starts with (`250k` is 250,000), a note after it aside; None for a blank or wordy one."""
    digits = text.partition(" ")[0].replace(",", "")[:LONGEST_NUMBER]
    try:
        return float(digits.removesuffix("k")) * (1000 if digits.endswith("k") else 1)
    except ValueError:
        return None


def value_of(key: Key, text: str) -> bool | int | float | str:
    """A cell as its column's kind, or as it is where it is not of that kind; yes and no are 1 and 0."""
    if key.kind == "boolean":
        return {"1": True, "0": False}.get(text, text)
    if key.kind not in ("integer", "number"):
        return text
    number = number_of(text)
    if number is None:
        return text
    return int(number) if key.kind == "integer" and number.is_integer() else number
