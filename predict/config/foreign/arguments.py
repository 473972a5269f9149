"""Arguments of another tool as they were read: values by name, which of them were used, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sampling.files.faults import Fault, shown

NOTHING = ("", "None", "null")
"""How configs write that a setting has no value."""
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """Values by name, with underscores. Reading one marks it as used; what is left over at the end had no meaning here."""

    values: Mapping[str, Any]
    faults: list[Fault] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """How values were taken whose meaning differs here."""

    def value(self, name: str, default: Any = None) -> Any:
        found = self.values.get(name)
        if isinstance(found, str) and found.startswith("$"):
            if name not in self.used:
                self.fault(name, f"{shown(found)} is set outside the file; write its value in its place")
            found = None
        self.used.add(name)
        return default if found is None else found

    def passed_over(self, *names: str) -> None:
        """Mark names as known to change nothing."""
        self.used.update(names)

    def switch(self, name: str, default: bool = False) -> bool:
        found = self.value(name, default)
        if isinstance(found, str) and found.lower() in TRUE + FALSE:
            return found.lower() in TRUE
        if not isinstance(found, bool):
            self.fault(name, f"{shown(found)} is neither true nor false; correct it")
            return default
        return found

    def count(self, name: str) -> int | None:
        """A whole number of 0 or more; None where it is not given."""
        found = self.value(name)
        if found is None or found is False or found in NOTHING:
            return None
        number = self.whole(name, 0)
        if number < 0:
            self.fault(name, f"{shown(found)} is below 0; correct it")
        return max(0, number)

    def whole(self, name: str, default: int) -> int:
        """A whole number, which may be negative."""
        number = self.number(name, default)
        if number != int(number):
            self.fault(name, f"{shown(self.value(name))} is not a whole number; correct it")
        return int(number)

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        found = self.value(name, default)
        try:
            number = default if found in NOTHING else float(found)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.fault(name, f"{shown(found)} is not a number; correct it")
            return default
        return number

    def text(self, name: str, default: str) -> str:
        found = self.value(name, default)
        if isinstance(found, list) and len(found) == 1:
            found = found[0]
        return default if found is False or found in NOTHING else str(found)

    def fault(self, name: str, problem: str) -> None:
        self.faults.append(Fault(path=name, problem=problem))

    @property
    def left_over(self) -> dict[str, Any]:
        return {name: value for name, value in self.values.items() if name not in self.used}
