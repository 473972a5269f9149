"""Choices: several values for one key, as a list, a range or `auto`.

plan: {tp: [2, 4, 8], pp: 1..16, vpp: auto}
batch: {micro: 1..4, seq_len: 2k..128k}
"""

import re
from collections.abc import Iterator
from typing import Any

from predict.run.plan import AUTO
from sampling.errors import UserError
from sampling.files.faults import shown
from sampling.files.schema import Key

RANGE = re.compile(r"\s*(\d+)([kKM]?)\s*\.\.\s*(\d+)([kKM]?)\s*(?:\.\.\s*(\d+)([kKM]?)\s*)?")
LISTED = re.compile(r"[\w.-]+(\s*,\s*[\w.-]+)+")
SUFFIXES = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20}
"""Sizes of sequences and batches are counted in powers of two."""
MOST_VALUES = 1_000
"""Values of one range."""


def is_choice(value: Any) -> bool:
    """Whether a key's value stands for several: a list, `auto`, or a range such as `1..16`."""
    return isinstance(value, list) or value == AUTO or (isinstance(value, str) and RANGE.fullmatch(value) is not None)


def search_takes(value: Any) -> str:
    """Advice for a value that stands for several, or that a user meant to, where one is needed; nothing for others."""
    if is_choice(value):
        return "; it stands for several values, which `predict search` takes"
    if isinstance(value, str) and LISTED.fullmatch(value):
        listed = ", ".join(part.strip() for part in value.split(","))
        return f"; several values, which `predict search` takes, are written [{listed}]"
    return ""


def values_of(path: str, choice: Any, key: Key) -> tuple[Any, ...]:
    """The values that a list or a range stands for, each once, in its order; `path` is the key's, for messages.

    `A..B` doubles from A up to B, `A..B..STEP` counts. UserError for an empty choice and for a value that the key cannot have.
    """
    values = tuple(dict.fromkeys(choice if isinstance(choice, list) else _range(path, choice)))
    if not values:
        raise UserError(f"{path}: {shown(choice)} holds no value; give one or more, as in [1, 2] or 1..8")
    for value in values:
        if problem := key.malformed(value) or key.refused(value):
            raise UserError(f"{path}: {problem}")
    return values


def _range(path: str, text: str) -> Iterator[int]:
    found = RANGE.fullmatch(text)
    assert found is not None
    first, last, step = (
        int(found[group]) * SUFFIXES[found[group + 1] or ""] if found[group] else 0 for group in (1, 3, 5)
    )
    if found[5] and not step:
        raise UserError(f"{path}: {shown(text)} counts in steps of 0; give a step of 1 or more")
    if not first and not step:
        raise UserError(f"{path}: {shown(text)} doubles from 0; start at 1 or more, or give a step, as in 0..{last}..1")
    if step and (last - first) // step >= MOST_VALUES:
        raise UserError(f"{path}: {shown(text)} holds more than {MOST_VALUES:,} values; give a longer step")
    value = first
    while value <= last:
        yield value
        value = value + step if step else 2 * value
