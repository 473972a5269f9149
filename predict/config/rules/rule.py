"""Rules across keys, and the check of all of them.

A rule names the key path it blames and takes the values it looks at. It runs when all of them are sound on their own, so a
fault in one place hides none elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sampling.files.faults import Fault

Problems = Iterator[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A check over several values, which yields what is wrong with them: the value, the reason, the fix."""

    path: str
    """The key path that the problems are reported at."""
    needs: tuple[str, ...]
    """Names of the values: keys of the sections, fields of the model, and `model` for all of it."""
    check: Callable[..., Problems]


RULES: list[Rule] = []


def rule(path: str, *needs: str) -> Callable[[Callable[..., Problems]], Callable[..., Problems]]:
    """Declare a rule that blames `path`. Its parameters are the names of the values it needs, unless `needs` names them."""

    def declare(check: Callable[..., Problems]) -> Callable[..., Problems]:
        parameters = check.__code__.co_varnames[: check.__code__.co_argcount]
        RULES.append(Rule(path=path, needs=needs or tuple(name.rstrip("_") for name in parameters), check=check))
        return check

    return declare


def broken_rules(values: Mapping[str, Any]) -> Iterator[Fault]:
    """A fault for each rule that the values break; rules that lack a value are passed over."""
    for each in RULES:
        if all(need in values for need in each.needs):
            for problem in each.check(*(values[need] for need in each.needs)):
                yield Fault(path=each.path, problem=problem)
