"""Sweep: a run under every combination of some keys' values. A combination that cannot run keeps its reason."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from predict.config.choices import SUFFIXES, is_choice, values_of
from predict.config.draft import PRECISION, SECTIONS, Document
from predict.config.load import load
from predict.config.overrides import OPTION as SET
from predict.config.overrides import as_settings, parse_overrides
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import Checks, ConfigError, InfeasibleError, UserError
from sampling.files.faults import did_you_mean, shown
from sampling.files.schema import Key

# The keys that a sweep varies, each with its values, and the settings of every combination.

OPTION = "--vary"
MOST_ROWS = 100_000
WITH_SUFFIX = re.compile(r"(\d+)([kKM])")
WHOLE = ("model", "cluster")
"""Sections that a name stands for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Varied:
    """One key and its values."""

    path: str
    values: tuple[Any, ...]


def parse_vary(
    texts: Sequence[str], key_of: Callable[[str], Key] | None = None, option: str = OPTION
) -> tuple[Varied, ...]:
    """The keys of `batch.seq_len=2k..128k` and `batch.micro=1,2,4`, by default those of a run config. UserError, with a line for each text
    that is wrong: one that is not KEY=VALUES, an unknown key or an empty range; and for a key given twice, or more than MOST_ROWS rows."""
    varied: list[Varied] = []
    with Checks() as checks:
        for text in texts:
            with checks.one():
                varied.append(_varied(text, key_of or key_of_run, option))
    require_once(each.path for each in varied)
    rows = math.prod(len(each.values) for each in varied)
    if rows > MOST_ROWS:
        raise UserError(told(option, f"{rows:,} combinations are more than {MOST_ROWS:,}; vary fewer values at once"))
    return tuple(varied)


def _varied(text: str, key_of: Callable[[str], Key], option: str) -> Varied:
    settings, faults = parse_overrides([text])
    if faults or not settings:
        raise UserError(f"{OPTION}: {shown(text)} is not KEY=VALUES; write for example batch.micro=1,2,4")
    path, key = settings[0].path, key_of(settings[0].path)
    return Varied(path=path, values=_values(path, settings[0].value, key, option))


def told(option: str, problem: str) -> str:
    """A problem after the option that it is a fault of; alone where there is none, as in a search, whose values a config may give."""
    return f"{option}: {problem}" if option else problem


def require_once(paths: Iterable[str]) -> None:
    """UserError for a key that is given more than once."""
    if twice := [path for path, times in Counter(paths).items() if times > 1]:
        raise UserError(f"{OPTION}: {', '.join(twice)} is given twice; give all its values at once")


def combinations(varied: Sequence[Varied]) -> Iterator[Mapping[str, Any]]:
    """Key path → value of each combination; the last key changes fastest."""
    for values in itertools.product(*(each.values for each in varied)):
        yield dict(zip((each.path for each in varied), values, strict=True))


def key_of_run(path: str) -> Key:
    """The declaration of a run config's key; UserError for an unknown one, with the nearest."""
    if path in WHOLE:
        return Key(name=path, kind="string")
    if path == PRECISION.name:
        return PRECISION
    section, _, name = path.partition(".")
    if section == "model" and name:
        return Key(name=name)
    known = {key.name: key for key in SECTIONS.get(section, ())}
    if name not in known:
        raise unknown_key(
            path, [f"{each}.{key.name}" for each, keys in SECTIONS.items() for key in keys], "a run config"
        )
    return known[name]


def unknown_key(path: str, paths: Sequence[str], of: str) -> UserError:
    """The error for a key that is none of `paths`, with the nearest of them."""
    section, _, name = path.partition(".")
    homes = [each for each in paths if each.partition(".")[2] == (name or section)]
    near = f"; did you mean {shown(homes[0])}?" if homes else did_you_mean(path, paths)
    return UserError(f"{OPTION}: {shown(path)} is not a key of {of}{near or '; docs/reference/config.md lists them'}")


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


# Combinations of some keys' values, each with what is predicted for it or the reason why there is nothing.

Predicted = TypeVar("Predicted")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRow(Generic[Predicted]):
    """One combination."""

    values: Mapping[str, Any]
    """Key path → the value that it has here."""
    prediction: Predicted | None
    reason: str = ""
    """The reason why there is no prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRows(Generic[Predicted]):
    """The combinations in their order, the last key changing fastest."""

    name: str
    varied: tuple[Varied, ...]
    rows: tuple[SweptRow[Predicted], ...]


def swept_rows(
    name: str,
    varied: Sequence[Varied],
    predict: Callable[[Mapping[str, Any]], Predicted],
    progress: Callable[[int, int], None] | None = None,
    option: str = OPTION,
) -> SweptRows[Predicted]:
    """Every combination predicted; `progress` is told how many are done, of how many. `option` is what errors name for a varied key, if any.
    ConfigError, with the reason of the first, where none can run; InfeasibleError where that is the reason of each."""
    given = list(combinations(varied))
    rows: list[SweptRow[Predicted]] = []
    infeasible = 0
    for values in given:
        try:
            rows.append(SweptRow(values=values, prediction=predict(values)))
        except (ConfigError, InfeasibleError) as error:
            infeasible += isinstance(error, InfeasibleError)
            rows.append(SweptRow(values=values, prediction=None, reason=_as_varied(str(error), values, option)))
        if progress is not None:
            progress(len(rows), len(given))
    if all(row.prediction is None for row in rows):
        first = ", ".join(f"{path}={value}" for path, value in rows[0].values.items())
        which = "the only combination" if len(rows) == 1 else f"none of {len(rows):,} combinations can run; the first"
        kind = InfeasibleError if infeasible == len(rows) else ConfigError
        raise kind(told(option, f"{which}, {first}, cannot run:\n{rows[0].reason}"))
    return SweptRows(name=name, varied=tuple(varied), rows=tuple(rows))


def _as_varied(reason: str, values: Mapping[str, Any], option: str) -> str:
    """A reason whose lines name `option`, and not --set, before the keys that are varied."""
    for path in values:
        reason = reason.replace(f"{SET}: {path}", told(option, path))
    return reason


SweptRun = SweptRow[Prediction]
Sweep = SweptRows[Prediction]


def sweep(
    config: Path | str | Document,
    vary: Sequence[str],
    overrides: Sequence[str],
    predict: Callable[[TrainingRun], Prediction],
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict a config under every combination of `vary`. Where the plan's other degrees or the nodes vary, and dp does not, dp
    takes the ranks that are left.

    UserError for a key or range that is wrong; ConfigError, with the reason of the first, where no combination can run.
    """

    def predicted(values: Mapping[str, Any]) -> Prediction:
        return predict(load(config, [*overrides, *as_settings(values)]))

    name = config.name if isinstance(config, Document) else Path(config).stem
    return swept_rows(name, parse_vary(vary), predicted, progress)
