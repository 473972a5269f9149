"""Errors of predicted closed loops, summed up: means over judged rows, every row one vote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from predict.validation.serving.closed_loop.compared import ComparedLoop, RefusedLoop


def closed_loop_json(compared: Sequence[ComparedLoop], refused: Sequence[RefusedLoop]) -> dict[str, Any]:
    """The part `closed_loop` of `predict validate serving --json`; errors are fractions."""
    judged = [one for one in compared if not one.left_out]
    groups: dict[str, list[ComparedLoop]] = {}
    for one in compared:
        groups.setdefault(one.row.group, []).append(one)
    reasons: dict[tuple[str, str], int] = {}
    for other in refused:
        key = other.row.group, other.why
        reasons[key] = reasons.get(key, 0) + 1
    return {
        "summary": _errors(judged),
        "by_group": {name: {**_errors(group), "left_out": group[0].left_out} for name, group in sorted(groups.items())},
        "rows": [_row(one) for one in compared],
        "refused": [{"group": group, "rows": count, "why": why} for (group, why), count in reasons.items()],
    }


def _errors(rows: Sequence[ComparedLoop]) -> dict[str, Any]:
    tpot, ttft = [one.tpot_error for one in rows], [one.ttft_error for one in rows if one.ttft_error is not None]
    return {
        "rows": len(rows),
        "tpot": _mean(map(abs, tpot)),
        "tpot_bias": _mean(tpot),
        "coverage": _mean(one.covered for one in rows),
        "ttft": _mean(map(abs, ttft)),
    }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None


def _row(one: ComparedLoop) -> dict[str, Any]:
    row = one.row
    return {
        "group": row.group,
        "tp": row.tp,
        "dp": row.dp,
        "isl": row.isl,
        "osl": row.osl,
        "concurrency": row.concurrency,
        "predicted_ms": {
            "tpot": one.tpot_us / 1e3,
            "tpot_low": one.tpot_low_us / 1e3,
            "tpot_high": one.tpot_high_us / 1e3,
            "ttft": one.ttft_us / 1e3,
        },
        "measured_ms": {"tpot": row.tpot_ms, "ttft": row.ttft_ms},
        "speed_of_light_ms": one.bound_us / 1e3,
        "tpot_error": one.tpot_error,
        "covered": one.covered,
        "judged": not one.left_out,
    }
