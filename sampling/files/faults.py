"""Faults of an input, gathered so that one error can list them all."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sampling.errors import ConfigError, UserError

LONGEST_KEY = 100
LONGEST_SHOWN_BITS = 128
"""Longer integers are described: Python refuses to print those of more than 4300 digits, and nobody reads them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault: its key path ("" for the whole file), and the problem: the value, what is allowed and the fix."""

    path: str
    problem: str
    needs: tuple[str, ...] = ()
    """Names of the values that were looked at, where they are more than that at `path`."""
    given_with: str = ""
    """Options whose values were looked at beside those of the source."""

    def under(self, section: str) -> Fault:
        """The same fault with its path below `section`."""
        return replace(self, path=join(section, self.path))


def join(section: str, key: str) -> str:
    """`section.key`; either part may be empty."""
    return f"{section}.{key}" if section and key else section or key


def config_error(
    faults: Iterable[Fault], sources: Mapping[str, str], *, error: type[UserError] = ConfigError, fix: str = ""
) -> UserError:
    """One error with a line for each fault: `file: key path: problem`, and `fix` at its end.

    `sources` names where the value at a key path came from; a path inherits from the path around it, and has no source
    where there is none.
    """
    lines = (": ".join(filter(None, (_source(fault, sources), fault.path, fault.problem))) for fault in faults)
    return error("\n".join(dict.fromkeys(lines)) + (f"; {fix}" if fix else ""))


def _source(fault: Fault, sources: Mapping[str, str]) -> str:
    return " with ".join(filter(None, (source_of(fault.path, sources), fault.given_with)))


def source_of(path: str, sources: Mapping[str, str]) -> str:
    """The source of the value at a key path: that of the nearest path around it which has one."""
    while path and path not in sources:
        path = path.rpartition(".")[0]
    return sources.get(path, "")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the name of its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def as_written(value: Any) -> str:
    """A plain value as a config writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Short(reprlib.Repr):
    """Values as a user wrote them, cut to a line."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > LONGEST_SHOWN_BITS:
            return f"an integer of {x.bit_length()} bits"
        return super().repr_int(x, level)

    def repr_bool(self, x: bool, level: int) -> str:
        return str(x).lower()

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: N802  (reprlib looks methods up by type name)
        return "null"


shown = _Short().repr


def key_name(key: Any) -> str:
    """A mapping's key as a part of a key path: plain names bare, anything else quoted."""
    plain = isinstance(key, str) and key.isprintable() and 0 < len(key) <= LONGEST_KEY
    return key if plain else shown(key)


MOST_NAMED = 4
LEAST_PREFIX = 3
"""Letters that a word needs before it counts as the beginning of names."""
DIVISORS_LISTED = 12
"""As many as a line holds beside its value and its fix."""


def nearest(name: Any, known: Iterable[str]) -> list[str]:
    """The known names that a word may stand for, in any case of letters: those it begins, where they are few, else the most similar."""
    if not isinstance(name, str):
        return []
    word = name[:100].lower()
    by_word: dict[str, str] = {}
    for each in known:
        by_word.setdefault(each.lower(), each)
    if word in by_word:
        return [by_word[word]]
    begun = sorted(each for each in by_word if len(word) >= LEAST_PREFIX and each.startswith(word))
    found = begun if 0 < len(begun) <= MOST_NAMED else difflib.get_close_matches(word, list(by_word), n=1)
    return [by_word[each] for each in found]


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or `'x' or 'y'`, or nothing if no known name is near."""
    found = nearest(name, known)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def near_multiples(value: int, factor: int) -> str:
    """The multiples of `factor` on either side of `value`, in words."""
    below = value // factor * factor
    return f"{below} or {below + factor}" if below else str(factor)


def divisors(number: int, *, where: Callable[[int], bool] = lambda divisor: True) -> str:
    """The smallest divisors of a number, DIVISORS_LISTED at most, in words as `1` or `one of 1, 2, 4`, `where` a condition holds; sought
    among the first thousand integers."""
    found = [each for each in range(1, min(number, 1000) + 1) if number % each == 0 and where(each)]
    return ("one of " if len(found) > 1 else "") + ", ".join(map(str, found[:DIVISORS_LISTED]))


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`, `3 microbatches`."""
    plural = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{plural}"
