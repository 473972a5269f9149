"""The keys of a config that vary, each with its values: those that `--vary` gives, or that a config leaves open."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from predict.config.choices import SUFFIXES, is_choice, values_of
from predict.config.document import value_at
from predict.config.overrides import as_settings, parse_overrides
from predict.kinds import KINDS, EnumeratedKind, Kind, Values
from predict.run.plan import AUTO
from sampling.errors import Checks, UserError
from sampling.files.faults import did_you_mean, shown
from sampling.files.schema import Key

OPTION = "--vary"
MOST_ROWS = 100_000
WITH_SUFFIX = re.compile(r"(\d+)([kKM])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Varied:
    """One key and its values; none where the kind of config chooses them."""

    path: str
    values: tuple[Any, ...]


def parse_vary(texts: Sequence[str], of: Kind[Any, Any], option: str = OPTION) -> tuple[Varied, ...]:
    """The keys of `batch.seq_len=2k..128k` and `batch.micro=1,2,4`. UserError, with a line for each text that is wrong: one that is not
    KEY=VALUES, an unknown key or an empty range; and for a key given twice, or more than MOST_ROWS rows."""
    varied: list[Varied] = []
    with Checks() as checks:
        for text in texts:
            with checks.one():
                varied.append(_varied(text, of, option))
    if twice := [path for path, times in Counter(each.path for each in varied).items() if times > 1]:
        raise UserError(f"{OPTION}: {', '.join(twice)} is given twice; give all its values at once")
    rows = math.prod(len(each.values) or 1 for each in varied)
    if rows > MOST_ROWS:
        raise UserError(
            with_option(option, f"{rows:,} combinations are more than {MOST_ROWS:,}; vary fewer values at once")
        )
    return tuple(varied)


def _varied(text: str, of: Kind[Any, Any], option: str) -> Varied:
    settings, faults = parse_overrides([text])
    if faults or not settings:
        raise UserError(f"{OPTION}: {shown(text)} is not KEY=VALUES; write for example batch.micro=1,2,4")
    path, written = of.resolved(settings[0].path), settings[0].value
    key = of.key(path)
    if key is None:
        raise _unknown_key(path, of)
    if written == AUTO and of.can_be_auto:
        _require_automatic([path], of)
        return Varied(path=path, values=())
    return Varied(path=path, values=_values(path, written, key, option))


def _require_automatic(paths: Sequence[str], of: Kind[Any, Any]) -> None:
    if wrong := [path for path in paths if path not in of.can_be_auto]:
        raise UserError(
            f"{', '.join(wrong)}: auto is for {', '.join(of.can_be_auto)}; give values, as in [1, 2] or 1..8"
        )


def with_option(option: str, problem: str) -> str:
    """A problem after the option that it is a fault of; alone where there is none, as in a search, whose values a config may give."""
    return f"{option}: {problem}" if option else problem


def combinations(varied: Sequence[Varied]) -> Iterator[Values]:
    """Key path → value of each combination; the last key changes fastest."""
    for values in itertools.product(*(each.values for each in varied)):
        yield dict(zip((each.path for each in varied), values, strict=True))


def _unknown_key(path: str, of: Kind[Any, Any]) -> UserError:
    """The error for a key that does not vary, with the nearest that does."""
    section, _, name = path.partition(".")
    homes = [each for each in of.paths() if each.partition(".")[2] == (name or section)]
    near = f"; did you mean {shown(homes[0])}?" if homes else did_you_mean(path, of.paths())
    title = KINDS[of.name].title
    return UserError(
        f"{OPTION}: {shown(path)} is not a key of {title}{near or '; docs/reference/config.md lists them'}"
    )


def opened(of: EnumeratedKind[Any, Any], config: Any, overrides: Sequence[str]) -> tuple[tuple[Varied, ...], list[str]]:
    """The keys that a config and its settings leave open, as lists, ranges or `auto`, and the other settings."""
    content = of.content(config, overrides)
    choices = {path: value for path in of.paths() if is_choice(value := value_at(content, path))}
    _require_automatic([path for path, value in choices.items() if value == AUTO], of)
    others = [text for text in overrides if not _opens(text, of)]
    choices = choices or of.opened(others)
    return parse_vary(as_settings(choices), of, option=""), others


def _opens(text: str, of: Kind[Any, Any]) -> bool:
    """Whether a setting leaves its key open."""
    settings, faults = parse_overrides([text])
    return not faults and is_choice(settings[0].value) and of.resolved(settings[0].path) in of.paths()


def _values(path: str, written: Any, key: Key, option: str) -> tuple[Any, ...]:
    if isinstance(written, str) and not (is_choice(written) and ".." in written):
        listed = key.kind == "string" and key.pattern and "," in written and not written.startswith("[")
        if listed and not key.malformed(written):  # a text that is a list by itself, such as a layout
            return (written,)
        written = [_value(part.strip(), key) for part in written.split(",") if part.strip()]
    elif not isinstance(written, list | str):
        written = [] if written is None else [written]
    return values_of(f"{option} {path}".strip(), written, key)


def _value(text: str, key: Key) -> Any:
    """One value of a list, as YAML has it, or a size such as 4k."""
    if found := WITH_SUFFIX.fullmatch(text):
        return int(found[1]) * SUFFIXES[found[2]]
    value = parse_overrides([f"a.b={text}"])[0][0].value
    return text if key.kind == "string" and not isinstance(value, str) else value
