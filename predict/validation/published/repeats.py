"""Repeats of one configuration, which count once: by the median of their measurements."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from statistics import median

from predict.validation.published.comparison import Comparison

NAMED = ("dup_group", "mbs", "precision")
"""Columns that name a configuration: a table's `dup_group` need not tell microbatches and precisions apart."""


def configurations(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The rows that were predicted, the first of each configuration's repeats with the median of all their times.

    Rows are repeats if their `dup_group`, microbatch and precision agree and they stand for the same runs, hence are predicted
    alike: rows of a group may still differ in heads, recomputation, or what overlaps.
    """
    repeats: dict[Hashable, list[Comparison]] = {}
    for one in comparisons:
        if one.predicted:
            repeats.setdefault(_key(one), []).append(one)
    return [
        replace(
            same[0], measured_us=median(one.measured_us for one in same), repeats=tuple(one.row.row_id for one in same)
        )
        for same in repeats.values()
    ]


def _key(one: Comparison) -> Hashable:
    if not one.row.text("dup_group"):
        return id(one)
    return (*map(one.row.text, NAMED), one.predicted)
