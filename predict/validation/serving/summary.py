"""Errors of predicted serving runs, summed up: means over stages below saturation, every stage one vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from predict.serialise import version_of
from predict.validation.serving.capacity import Capacity
from predict.validation.serving.comparison import SUB, Compared, Refused
from predict.validation.serving.transfer import Transfer

FIGURES = ("e2e", "ttft", "tpot", "e2e_p90")


def as_json(
    compared: Sequence[Compared], refused: Sequence[Refused], found: Sequence[Capacity], *, model: str
) -> dict[str, Any]:
    """The stable content of `predict validate serving --json`; errors and shares are fractions."""
    judged = [one for one in compared if one.stage.regime == SUB]
    return {
        "version": version_of("validate-serving"),
        "model": model,
        "summary": {
            **mean_errors(judged),
            "coverage": _coverage(judged),
            "capacity": fmean(abs(one.error) for one in found) if found else None,
        },
        "bias": {name: _mean(_known(judged, name)) for name in FIGURES},
        "by_gpu": _by(judged, lambda one: one.stage.gpu),
        "by_model": _by(judged, lambda one: one.stage.model),
        "by_source": _by(judged, lambda one: one.stage.source),
        "rows": [_row(one) for one in compared],
        "refused": [{"experiment": one.stage.experiment, "stage": one.stage.stage, "why": one.why} for one in refused],
        "capacities": [{**asdict(one), "error": one.error} for one in found],
    }


def transfer_json(transfer: Transfer) -> dict[str, Any]:
    """The part `transfer`: the GPU that coefficients were fitted on, and their errors on each other one."""
    return {
        "fitted_on": transfer.fitted_on,
        **mean_errors(transfer.compared),
        "coverage": _coverage(transfer.compared),
        "by_gpu": _by(transfer.compared, lambda one: one.stage.gpu),
    }


def mean_errors(compared: Sequence[Compared]) -> dict[str, float | None]:
    """The mean size of the errors of each figure."""
    return {name: mean_error(compared, name) for name in FIGURES}


def mean_error(compared: Iterable[Compared], name: str) -> float | None:
    """Mean size of the errors of one figure; None where no stage has it."""
    return _mean(map(abs, _known(compared, name)))


def _coverage(compared: Iterable[Compared]) -> float | None:
    """Share of the stages whose mean E2E lies in its interval."""
    return _mean(one.covered for one in compared if one.covered is not None)


def _known(compared: Iterable[Compared], name: str) -> list[float]:
    return [error for one in compared if (error := one.errors[name]) is not None]


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def _by(compared: Sequence[Compared], key: Callable[[Compared], str]) -> dict[str, Mapping[str, Any]]:
    groups: dict[str, list[Compared]] = {}
    for one in compared:
        groups.setdefault(key(one), []).append(one)
    return {name: {"rows": len(group), **mean_errors(group)} for name, group in sorted(groups.items())}


def _row(one: Compared) -> dict[str, Any]:
    stage, found = one.stage, one.predicted
    return {
        "experiment": stage.experiment,
        "stage": stage.stage,
        "model": stage.model,
        "gpu": stage.gpu,
        "profile": stage.profile,
        "rate_rps": stage.rate_rps,
        "regime": stage.regime,
        "fitted_without": one.fitted_without,
        "predicted_ms": {
            "e2e": found.e2e.mean_us / 1e3,
            "e2e_low": one.low.e2e.mean_us / 1e3,
            "e2e_high": one.high.e2e.mean_us / 1e3,
            "ttft": found.ttft.mean_us / 1e3,
            "tpot": found.tpot.mean_us / 1e3,
            "e2e_p90": found.e2e.percentiles_us[90] / 1e3,
        },
        "measured_ms": {
            "e2e": stage.e2e_mean_ms,
            "ttft": stage.ttft_mean_ms,
            "tpot": stage.tpot_mean_ms,
            "e2e_p90": stage.e2e_p90_ms,
        },
        "errors": dict(one.errors),
        "covered": one.covered,
    }
