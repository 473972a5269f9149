"""Constants that were read off published training runs: value, bounds, source, and what each moves, of `configs/published-constants.json`.

Samples of the device come before them wherever there are any. Figures of one framework or device stay in its file, which
`place` names; the list has them too, so that every such figure is found there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sampling.files.places import shipped_json

Scope: TypeAlias = Literal["global", "kernel", "framework", "interval"]
"""The reach of a constant: `global` moves the median of all frameworks' runs of a precision or an architecture, `interval` only widths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedConstant:
    """A factor or a share, without unit, and the bounds that its source leaves it."""

    value: float
    low: float
    high: float
    source: str
    moves: str
    """The times that it changes."""
    scope: Scope = "kernel"
    place: str = ""
    """The file that holds the value, and the key or name in it, where that is not the list."""


CONSTANTS: Mapping[str, PublishedConstant] = {
    name: PublishedConstant(**fields) for name, fields in shipped_json("published-constants.json").items()
}
