"""Cases measured in turns, so that a slow spell of the machine falls on all alike; interrupted ones go on where they stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from predict.serialise import rebuild
from sampling.files.disk import MAKE_WRITABLE, append_line, naming_the_disk, require_place
from sampling.files.places import own_data
from sampling.hardware.this_device import cpu_name
from sampling.number_text import count

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Case = TypeVar("Case")
Measured = TypeVar("Measured", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRounds(Generic[Measured]):
    """The measurements of an interrupted validation by their place in the order in which they are taken, in a file from which the same
    validation goes on; a whole one leaves none."""

    path: Path
    measured: dict[int, Measured]

    @classmethod
    def of(cls, what: Sequence[Any], kind: type[Measured]) -> KeptRounds[Measured]:
        """The rounds kept of a validation that `what` describes, on this machine; none if any of that differs."""
        key = json.dumps([*what, cpu_name()])
        name = f"validation-{hashlib.sha256(key.encode()).hexdigest()[:12]}.partial.jsonl"
        path = own_data() / "published" / name
        require_place(path, MAKE_WRITABLE)
        lines = path.read_text().splitlines() if path.is_file() else []
        return cls(path=path, measured=dict(found for line in lines if (found := _read(line, kind))))

    def add(self, place: int, measured: Measured) -> None:
        self.measured[place] = measured
        with naming_the_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                append_line(file, json.dumps([place, asdict(measured)]))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _read(line: str, kind: type[Measured]) -> tuple[int, Measured] | None:
    """The place and the measurement of a line; None for one that was cut off, or that another version wrote."""
    try:
        place, fields = json.loads(line)
        return place, rebuild(kind, fields)
    except (ValueError, TypeError):
        return None


def in_turns(
    cases: Sequence[Case],
    rounds: int,
    measure: Callable[[Case], Measured | None],
    words: Callable[[Measured], str],
    report: Callable[[str], None],
    kept: KeptRounds[Measured] | None = None,
) -> list[list[Measured]]:
    """The measurements of each case, one a round; none for a case that `measure` returned None for, which it then leaves out.

    Each is reported as it comes, in `words` and with the time left. `kept` holds those of an interrupted call, and gets the new ones.
    """
    measured: list[list[Measured]] = [[] for _ in cases]
    failed: set[int] = set()
    start, fresh, total = time.monotonic(), 0, rounds * len(cases)
    for place in range(total):
        index = place % len(cases)
        if kept and place in kept.measured:
            measured[index].append(kept.measured[place])
            continue
        if index in failed:
            continue
        fresh += 1
        result = measure(cases[index])
        if result is None:
            failed.add(index)
            continue
        measured[index].append(result)
        if kept:
            kept.add(place, result)
        left_s = (time.monotonic() - start) / fresh * (total - place - 1)
        report(f"measured {place + 1} of {total}: {words(result)}, {count(left_s)} s left")
    return [[] if index in failed else results for index, results in enumerate(measured)]
