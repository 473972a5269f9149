"""What the fitted models are worth on rows they have not seen, beside the common practice of trees on raw time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regressors.dataset.splits import at_random, by_shape
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats
from regressors.fitting.selection import HeldOut, fit_rows, log_errors
from regressors.models.candidates import RAW_TIME
from regressors.uncertainty.intervals import half_width

if TYPE_CHECKING:
    from rich.table import Table

NOTE = """\
MAPE in %, on held-out rows. *random*: a fifth of the rows, three seeds; *shape*: five folds of distinct shapes; *largest*:
the fifth of the shapes with the most work. Every fit sees the other rows only; the choice of candidate is made once an
operator, from the shape and largest columns. *raw* is the better on unseen shapes of a random forest and XGBoost on raw
time. *cover*: how many held-out times the 90 % interval, calibrated on the other folds, contains.
"""
SPLITS = ("random", "shape", "largest")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mape:
    """Mean absolute percentage error by split; None where there are too few rows to hold any out."""

    random: float | None
    shape: float | None
    largest: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorReport:
    """One operator's row. `raw` is None where too few shapes were sampled to fit trees, or so many that it would take long."""

    name: str
    phase: str
    threads: int
    rows: int
    shapes: int
    candidate: str
    chosen: Mape
    raw: Mape | None
    coverage: float | None


def evaluate(data: TrainingData, held_out: HeldOut, candidate: str, rivals: Mapping[str, HeldOut]) -> OperatorReport:
    """Score the chosen candidate, and the better of the trees on raw time among its rivals, if there are any."""
    raw = [name for name in RAW_TIME if name in rivals]
    best_raw = min(raw, key=lambda name: _mape(rivals[name].unseen) or math.inf) if raw else None
    return OperatorReport(
        name=data.key.name,
        phase=data.key.phase,
        threads=data.key.threads,
        rows=len(data),
        shapes=data.shapes,
        candidate=candidate,
        chosen=_score(data, held_out, candidate),
        raw=_score(data, rivals[best_raw], best_raw) if best_raw else None,
        coverage=_coverage(data, held_out.unseen),
    )


def _score(data: TrainingData, held_out: HeldOut, candidate: str) -> Mape:
    at_random_errors = [log_errors(fit_rows(candidate, data, ~mask), data, mask) for mask in at_random(len(data))]
    return Mape(
        random=_mape(np.concatenate(at_random_errors)) if at_random_errors else None,
        shape=_mape(held_out.unseen),
        largest=_mape(held_out.beyond),
    )


def _mape(log_errors: Floats) -> float | None:
    tried = log_errors[~np.isnan(log_errors)]
    return float(100 * np.mean(np.abs(np.expm1(tried)))) if len(tried) else None


def _coverage(data: TrainingData, unseen: Floats) -> float | None:
    """Each fold against the interval that the other folds' errors give."""
    folds = by_shape(data.shape)
    if len(folds) < 3:
        return None
    inside = [np.abs(unseen[fold]) <= half_width(unseen[~fold]) for fold in folds]
    return float(np.concatenate(inside).mean())


def means(reports: Sequence[OperatorReport]) -> dict[str, dict[str, float | None]]:
    """Mean over the operators that have both a choice and a raw-time rival: by split, for either, and raw over chosen."""
    rivals = [(report.chosen, report.raw) for report in reports if report.raw]
    table: dict[str, dict[str, float | None]] = {}
    for split in SPLITS:
        pairs = [(getattr(chosen, split), getattr(raw, split)) for chosen, raw in rivals]
        known = [pair for pair in pairs if None not in pair]
        chosen, raw = (float(np.mean([pair[side] for pair in known])) if known else None for side in (0, 1))
        table[split] = {"chosen": chosen, "raw": raw, "ratio": raw / chosen if raw and chosen else None}
    return table


def as_json(reports: Sequence[OperatorReport], facts: Mapping[str, Any]) -> str:
    return json.dumps({**facts, "operators": [asdict(report) for report in reports], "means": means(reports)}, indent=1)


def as_markdown(reports: Sequence[OperatorReport], facts: Mapping[str, Any]) -> str:
    header = _columns()
    lines = [
        f"# Regressors of {facts['profile']}",
        "",
        NOTE,
        "| " + " | ".join(header) + " |",
        "|---" * len(header) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in _rows(reports)]
    lines += [
        "",
        *summary(reports),
        "",
        f"Fitted {facts['fitted_at']}; quarantined rows left out: {facts['quarantined']}.",
    ]
    return "\n".join(lines) + "\n"


def as_table(reports: Sequence[OperatorReport], profile: str) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(title=f"Regressors of {profile}: MAPE in % on held-out rows (raw: trees on raw time)", box=SIMPLE)
    for column in _columns():
        table.add_column(column, justify="left" if column in ("operator", "phase", "chosen") else "right", no_wrap=True)
    for row in _rows(reports):
        table.add_row(*row)
    return table


def summary(reports: Sequence[OperatorReport]) -> list[str]:
    """The means over operators, a line a split."""
    lines = []
    for split, mean in means(reports).items():
        if mean["ratio"] is not None:
            lines.append(
                f"Mean over operators, {split}: {_cell(mean['chosen'])} % chosen, {_cell(mean['raw'])} % raw time: "
                f"{mean['ratio']:.1f}× less error"
            )
    return lines


def _columns() -> list[str]:
    return [
        "operator",
        "phase",
        "threads",
        "rows",
        "shapes",
        "chosen",
        *(f"{split} / raw" for split in SPLITS),
        "cover",
    ]


def _rows(reports: Sequence[OperatorReport]) -> list[list[str]]:
    table = []
    for report in reports:
        counts = [str(report.threads), str(report.rows), str(report.shapes)]
        sides = (report.chosen, report.raw)
        errors = [" / ".join(_cell(getattr(side, split, None)) for side in sides) for split in SPLITS]
        cover = "–" if report.coverage is None else f"{100 * report.coverage:.0f}"
        table.append([report.name, report.phase, *counts, report.candidate, *errors, cover])
    return table


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
