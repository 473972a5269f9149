"""The rule that a prediction must beat: every run of a source reaches the same MFU.

A run's measured MFU is its model's FLOPs over the peak of its GPUs in its precision. The rule predicts each configuration at the
median measured MFU of the source's other configurations, so it knows the source's own measurements, which we do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import fmean, median

from predict.validation.published.comparison import Comparison

DISTINCT = 1.05
"""Times less than 5 % apart are noise: repeats of one run differ by 2 to 6 %."""
WORK = ("model", "layers", "hidden", "ffn", "experts", "seq_len", "gpu", "n_gpus", "gbs")
"""Columns that say what is computed and on which GPUs: runs that agree in them differ in plan and settings alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairOrder:
    """Pairs of configurations more than 5 % apart, and how many are ordered right; a tie counts half."""

    pairs: int
    ours: float
    constant_mfu: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceResult:
    """One source's configurations; errors are mean absolute fractions, NaN for the rule on a single configuration."""

    source: str
    configurations: int
    error: float
    constant_mfu_error: float
    order: PairOrder
    order_of_one_work: PairOrder
    """The order of the pairs that differ in plan and settings alone, of which the rule knows nothing."""

    @property
    def better(self) -> bool:
        return self.error < self.constant_mfu_error


def beside_constant_mfu(configurations: Sequence[Comparison]) -> list[SourceResult]:
    """The results of each source, by name."""
    sources = sorted({one.row.text("source_id") for one in configurations})
    return [_result(name, [one for one in configurations if one.row.text("source_id") == name]) for name in sources]


def _result(source: str, found: Sequence[Comparison]) -> SourceResult:
    shares = [one.at_peak_us / one.measured_us for one in found]
    rule = [
        share / median(shares[:place] + shares[place + 1 :]) - 1
        for place, share in enumerate(shares)
        if len(shares) > 1
    ]
    return SourceResult(
        source=source,
        configurations=len(found),
        error=fmean(abs(one.error) for one in found),
        constant_mfu_error=fmean(map(abs, rule)) if rule else math.nan,
        order=_order([found]),
        order_of_one_work=_order(_by_work(found)),
    )


def _by_work(found: Sequence[Comparison]) -> Iterable[Sequence[Comparison]]:
    works: dict[tuple[str, ...], list[Comparison]] = {}
    for one in found:
        works.setdefault(tuple(map(one.row.text, WORK)), []).append(one)
    return works.values()


def _order(groups: Iterable[Sequence[Comparison]]) -> PairOrder:
    """The order within each group. A constant MFU orders runs by the time of their FLOPs at peak, whatever the constant is."""
    ours = rule = 0.0
    pairs = 0
    for one, other in chain.from_iterable(combinations(group, 2) for group in groups):
        ratio = one.measured_us / other.measured_us
        if max(ratio, 1 / ratio) <= DISTINCT:
            continue
        assert one.predicted and other.predicted
        pairs += 1
        ours += _agreement(ratio, one.predicted.median_us / other.predicted.median_us)
        rule += _agreement(ratio, one.at_peak_us / other.at_peak_us)
    return PairOrder(pairs=pairs, ours=ours, constant_mfu=rule)


def _agreement(measured_ratio: float, predicted_ratio: float) -> float:
    if math.isclose(predicted_ratio, 1, rel_tol=1e-9):
        return 0.5
    return float((predicted_ratio > 1) == (measured_ratio > 1))
