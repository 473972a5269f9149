"""The errors of published runs by source, GPU, kind of model, scale and class, and next to a rule that knows one MFU for each source."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import fmean, linear_regression, median
from typing import Any

from predict.serialise import as_json, each_picked, picked, version_of
from predict.validation.compared import grouped, scores
from predict.validation.published import MIXTURE, ComparedRun, Comparison, configurations
from predict.validation.published_row import PublishedRow
from predict.validation.published_software import CLASSES

# The rule that a prediction must beat: every run of a source reaches the same MFU.
#
# A run's measured MFU is its model's FLOPs over the peak of its GPUs in its precision. The rule predicts each configuration at the
# median measured MFU of the source's other configurations, so it knows the source's own measurements, which we do not.

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
    """The order of the pairs that differ in plan and settings alone, which the rule does not know."""

    @property
    def better(self) -> bool:
        return self.error < self.constant_mfu_error


def beside_constant_mfu(configurations: Sequence[Comparison]) -> list[SourceResult]:
    """The results of each source, by name."""
    return [_result(source, found) for source, found in sorted(grouped(configurations, KEYS["source"]).items())]


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
        order_of_one_work=_order(grouped(found, lambda one: tuple(map(one.row.text, WORK))).values()),
    )


def _order(groups: Iterable[Sequence[Comparison]]) -> PairOrder:
    """The order within each group. A constant MFU orders runs by the time of their FLOPs at peak, whatever the constant is."""
    ours = rule = 0.0
    pairs = 0
    for one, other in chain.from_iterable(combinations(group, 2) for group in groups):
        ratio = one.measured_us / other.measured_us
        if max(ratio, 1 / ratio) <= DISTINCT:
            continue
        pairs += 1
        ours += _agreement(ratio, one.predicted.median_us / other.predicted.median_us)
        rule += _agreement(ratio, one.at_peak_us / other.at_peak_us)
    return PairOrder(pairs=pairs, ours=ours, constant_mfu=rule)


def _agreement(measured_ratio: float, predicted_ratio: float) -> float:
    if math.isclose(predicted_ratio, 1, rel_tol=1e-9):
        return 0.5
    return float((predicted_ratio > 1) == (measured_ratio > 1))


# Figures by key; repeats of a configuration count once.

PREDICTED, NOT_EXPRESSIBLE = "predicted", "not_expressible"


def _precision(row: PublishedRow) -> str:
    text = row.text("precision").lower()
    if "fp4" in text:
        return "fp4"
    return "fp8" if "fp8" in text or "float8" in text else "16 bit"


def _scale(row: PublishedRow) -> str:
    gpus = row.number("n_gpus") or 0
    return next((f"up to {most}" for most in (8, 64, 512) if gpus <= most), "more than 512")


def _band(figure: float, bounds: Sequence[int]) -> str:
    return next((f"up to {most:,}" for most in bounds if figure <= most), f"more than {bounds[-1]:,}")


KEYS: Mapping[str, Callable[[Comparison], str]] = {
    "source": lambda one: one.source,
    "gpu": lambda one: one.row.text("gpu"),
    "kind": lambda one: one.kind,
    "precision": lambda one: _precision(one.row),
    "gpus": lambda one: _scale(one.row),
    "microbatches": lambda one: _band(one.microbatches, (1, 8, 64)),
    "tokens a sequence": lambda one: _band(one.row.number("seq_len") or 0, (2048, 4096, 8192)),
    "rests on": lambda one: max(one.sources, key=lambda name: one.sources[name]),
}


def summary(counted: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    """The figures of all configurations, and of those of each source, GPU, kind, precision, scale and main basis."""
    yield figures(["all"], counted)
    for key, of in KEYS.items():
        for value, own in sorted(grouped(counted, of).items()):
            yield figures([key, value], own)
    together = grouped(counted, lambda one: (one.source, one.kind, _precision(one.row)))
    for names in sorted(together, key=lambda names: (names[0], names[1] == MIXTURE, names[2])):
        yield figures(list(names), together[names])


FEW = 2
"""Microbatches of a step up to which strong scaling is judged: nothing else hides what a step ends with."""


def slope_of_strong_scaling(counted: Sequence[Comparison]) -> float | None:
    """Change of the error, as a fraction, for each doubling of the GPUs among runs of few microbatches; None where all have as many."""
    few = [
        (math.log2(gpus), one.error)
        for one in counted
        if one.microbatches <= FEW and (gpus := one.row.number("n_gpus") or 0) >= 1
    ]
    if len({doublings for doublings, _ in few}) < FEW:
        return None
    return linear_regression(*zip(*few, strict=True)).slope


def classes(counted: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The figures of each class that has configurations."""
    found = grouped(counted, lambda one: one.judged_as)
    return [figures([name], found[name]) for name in CLASSES if name in found]


def figures(key: list[str], counted: Sequence[Comparison]) -> dict[str, Any]:
    """Configurations (`rows`) and their measurements, mean and median error in percent, signed bias, the share of intervals
    that contain the measurement, and the intervals' mean half-width in log time."""
    if not counted:
        return {"key": key, "rows": 0}
    found = scores(counted)
    return {
        "key": key,
        "rows": found.rows,
        "measurements": sum(len(one.repeats) for one in counted),
        **found.percent,
        "coverage": found.coverage,
        "log_half_width": found.half_width_log,
    }


def published_json(comparisons: Sequence[ComparedRun]) -> dict[str, Any]:
    """Every row's comparison; figures count each configuration once."""
    counted = configurations(comparisons)
    return {
        "version": version_of("validate-published"),
        "rows": [_row_json(one) for one in comparisons],
        "configurations": each_picked(counted, "rows=repeats class=judged_as measured_us error covered"),
        "summary": list(summary(counted)),
        "sources": [_source_json(one) for one in beside_constant_mfu(counted)],
        "classes": classes(counted),
        "strong_scaling_slope": slope_of_strong_scaling(counted),
    }


def _source_json(one: SourceResult) -> dict[str, Any]:
    return {
        "source": one.source,
        "rows": one.configurations,
        "mean_error_percent": 100 * one.error,
        "constant_mfu_error_percent": None if math.isnan(one.constant_mfu_error) else 100 * one.constant_mfu_error,
        **picked(one, "order order_of_one_work"),
    }


def _row_json(one: ComparedRun) -> dict[str, Any]:
    compared = one if isinstance(one, Comparison) else None
    return {
        "row_id": one.row.row_id,
        "status": PREDICTED if compared else NOT_EXPRESSIBLE,
        "why": one.assumed if isinstance(one, Comparison) else one.why,
        "predicted_us": compared and as_json(compared.predicted),
        "measured_us": one.row.measured_us,
        **picked(compared, "error sources"),
    }
