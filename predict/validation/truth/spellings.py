"""Publishers' spellings in the cells of a table of measured runs, and our word for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sampling.files.keys import Key

NOT_STATED = {"-", "–", "—", "?", "n/a", "na", "not published", "unknown"}
"""Cells that state nothing, as blank ones do."""
NO_NUMBER = NOT_STATED | {"none", "null"}
"""Of a column of numbers."""
YES_AND_NO = {"true": "1", "yes": "1", "on": "1", "1.0": "1", "false": "0", "no": "0", "off": "0", "0.0": "0"}
WORDS: Mapping[str, Mapping[str, str]] = {
    "pp_schedule": {
        "interleaved1f1b": "1F1B interleaved",
        "interleaved": "1F1B interleaved",
        "1f1binterleaved": "1F1B interleaved",
        "gpipe": "afab",
    },
    "moe_dispatch": {"a2a": "alltoall", "nccl": "alltoall", "ag": "allgather"},
    "recompute": {"no": "none", "false": "none", "off": "none", "0": "none", "true": "full"},
    "fp8_recipe": {"delayed": "tensorwise", "pertensor": "tensorwise", "current": "tensorwise", "mx": "mxfp8"},
    "status": {"success": "ok", "outofmemory": "oom", "failed": "error"},
}
"""Column → a publisher's word, without case, spaces, hyphens and underscores → ours."""
CONTAINER = re.compile(
    r"(?:.*[:/ ])?v?(?P<tag>\d\d\.(?:0[1-9]|1[0-2])(?:\.\d\d)?)(?:[.\-_ ]?(?:rc\d*|alpha\d*|beta\d*|py\d|post\d+).*)?"
)
"""A container's tag such as `25.04.rc2`, `nemo:25.04` or `25.09-py3`."""
DENSE_LAYERS = re.compile(r"(?:dense_layers|first_k_dense(?:_replace)?|num_dense_layers)\s*[=:]\s*(?P<count>\d+)")


def as_ours(key: Key, text: str) -> str:
    """A cell in our words; as it is where it is one already, or none that is known; empty where it states nothing."""
    plain = text.casefold()
    number = key.kind in ("integer", "number")
    if plain in (NO_NUMBER if number else NOT_STATED):
        return ""
    if key.kind == "boolean":
        return YES_AND_NO.get(plain, text)
    if key.name in REWRITTEN:
        return REWRITTEN[key.name](text)
    return text if number or key.malformed(text) is None else _known_word(key, text)


def _known_word(key: Key, text: str) -> str:
    own = {_squeezed(choice): choice for choice in (key.choices() if key.choices else ())}
    return ({**own, **WORDS.get(key.name, {})}).get(_squeezed(text), text)


def _tag(text: str) -> str:
    found = CONTAINER.fullmatch(text)
    return found["tag"] if found else text


def _dense_layers(text: str) -> str:
    return DENSE_LAYERS.sub(lambda found: f"first {found['count']} layers dense", text)


REWRITTEN: Mapping[str, Callable[[str], str]] = {"date": _tag, "moe_layer_note": _dense_layers}
"""Columns of free text, a part of which has forms of its own."""


def decimal_point(text: str) -> str:
    """A number of a table with semicolons, whose comma is the decimal one (`3,5` or `1.234,5`), with a decimal point."""
    found = re.fullmatch(r"(-?\d+(?:\.\d{3})*),(\d+)(.*)", text)
    return f"{found[1].replace('.', '')}.{found[2]}{found[3]}" if found else text


def _squeezed(text: str) -> str:
    return re.sub(r"[\s_-]", "", text.casefold())
