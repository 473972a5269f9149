"""The rule that a prediction must beat: every run of a source reaches the same MFU.

A run's measured MFU is its model's FLOPs over the peak of its GPUs in its precision. The rule predicts each configuration at the
median measured MFU of the source's other configurations, so it knows the source's own measurements, which we do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations
from statistics import fmean, median
from typing import Any

from predict.serialise import version_of
from predict.validation.published import Comparison, configurations
from predict.validation.published_row import PublishedRow
from predict.validation.published_software import CLASSES

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


# The errors of published runs, told by source, GPU, kind of model, scale and class; repeats of a configuration count once.

PREDICTED, NOT_EXPRESSIBLE = "predicted", "not_expressible"


def _precision(row: PublishedRow) -> str:
    text = row.text("precision").lower()
    return "fp8" if "fp8" in text or "float8" in text else "16 bit"


def _scale(row: PublishedRow) -> str:
    gpus = row.number("n_gpus") or 0
    return next((f"up to {most}" for most in (8, 64, 512) if gpus <= most), "more than 512")


def _basis(one: Comparison) -> str:
    assert one.sources is not None
    return max(one.sources, key=lambda name: one.sources[name])  # type: ignore[index]


KEYS: dict[str, Callable[[Comparison], str]] = {
    "source": lambda one: one.row.text("source_id"),
    "gpu": lambda one: one.row.text("gpu"),
    "kind": lambda one: one.kind,
    "precision": lambda one: _precision(one.row),
    "gpus": lambda one: _scale(one.row),
    "rests on": _basis,
}


def summary(counted: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    """The figures of all configurations, and of those of each source, GPU, kind, precision, scale and main basis."""
    yield figures(["all"], counted)
    for key, of in KEYS.items():
        for value in sorted(set(map(of, counted))):
            yield figures([key, value], [one for one in counted if of(one) == value])
    for source in sorted(set(map(KEYS["source"], counted))):
        for kind in ("dense", "MoE"):
            for precision in ("16 bit", "fp8"):
                matching = [
                    one
                    for one in counted
                    if (KEYS["source"](one), KEYS["kind"](one), KEYS["precision"](one)) == (source, kind, precision)
                ]
                if matching:
                    yield figures([source, kind, precision], matching)


def classes(counted: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The figures of each class that has configurations."""
    found = ((name, [one for one in counted if one.judged_as == name]) for name in CLASSES)
    return [figures([name], matching) for name, matching in found if matching]


def figures(key: list[str], counted: Sequence[Comparison]) -> dict[str, Any]:
    """Configurations (`rows`) and their measurements, mean and median error in percent, signed bias, the share of intervals
    that contain the measurement, and the intervals' mean half-width in log time."""
    errors = [one.error for one in counted]
    if not errors:
        return {"key": key, "rows": 0}
    return {
        "key": key,
        "rows": len(errors),
        "measurements": sum(len(one.repeats) for one in counted),
        **error_percentages(errors),
        "coverage": fmean(one.covered for one in counted),
        "log_half_width": fmean(one.log_half_width for one in counted),
    }


def error_percentages(errors: Sequence[float]) -> dict[str, float]:
    """Mean and median of absolute errors and the mean signed error, all in percent."""
    return {
        "mean_error_percent": 100 * fmean(map(abs, errors)),
        "median_error_percent": 100 * median(map(abs, errors)),
        "bias_percent": 100 * fmean(errors),
    }


def published_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Every row's comparison; figures count each configuration once."""
    counted = configurations(comparisons)
    return {
        "version": version_of("validate-published"),
        "rows": [_row_json(one) for one in comparisons],
        "configurations": [
            {
                "rows": list(one.repeats),
                "class": one.judged_as,
                "measured_us": one.measured_us,
                "error": one.error,
                "covered": one.covered,
            }
            for one in counted
        ],
        "summary": list(summary(counted)),
        "sources": [_source_json(one) for one in beside_constant_mfu(counted)],
        "classes": classes(counted),
    }


def _source_json(one: SourceResult) -> dict[str, Any]:
    return {
        "source": one.source,
        "rows": one.configurations,
        "mean_error_percent": 100 * one.error,
        "constant_mfu_error_percent": None if math.isnan(one.constant_mfu_error) else 100 * one.constant_mfu_error,
        "order": asdict(one.order),
        "order_of_one_work": asdict(one.order_of_one_work),
    }


def _row_json(one: Comparison) -> dict[str, Any]:
    predicted = one.predicted
    return {
        "row_id": one.row.row_id,
        "status": PREDICTED if predicted else NOT_EXPRESSIBLE,
        "why": one.why,
        "predicted_us": predicted
        and {"median": predicted.median_us, "low": predicted.low_us, "high": predicted.high_us},
        "measured_us": one.row.measured_us,
        "error": one.error if predicted else None,
        "sources": one.sources,
    }
