"""Combinations of some keys' values, each with what is predicted for it or the reason why there is nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from predict.config.overrides import OPTION as SET
from predict.what_if.vary import OPTION as VARY
from predict.what_if.vary import Varied, combinations, told
from sampling.errors import ConfigError, InfeasibleError

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
    option: str = VARY,
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
