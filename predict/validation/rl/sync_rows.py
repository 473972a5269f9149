"""Published times in which new weights reach the engines, beside the model of the phase `update_weights`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.model.spec import ModelSpec
from predict.rl.phases import in_sample, sync_time
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.rl.judged import Judged, phase_json, summaries
from sampling.hardware.cluster import known_hardware, load_cluster
from sampling.units import SECOND_US

TRANSFER_COLUMNS = {"source", "model", "placement", "method", "seconds"}
"""Columns by which a table of weight transfers is told from one of steps."""
METHODS = {"default": "tensors", "checkpoint engine": "buckets", "broadcast": "host"}
"""A table's word for a method → that of `rl.weight_sync`."""
PHASE = "update_weights"


def is_of_transfers(columns: Iterable[str]) -> bool:
    """Whether a table with these columns is one of weight transfers."""
    return set(columns) >= TRANSFER_COLUMNS


def sync_rows_json(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """The part of `predict validate rl --json` that such a table has."""
    judged = [_judged(place, row) for place, row in enumerate(rows, 1)]
    return {
        **summaries({PHASE: [one for one in judged if isinstance(one, Judged)]}),
        "rows": [_row(place, row, one) for place, (row, one) in enumerate(zip(rows, judged, strict=True), 1)],
    }


def _judged(place: int, row: PublishedRow) -> Judged | str:
    """A row's prediction, or the reason why there is none."""
    try:
        if row.fault:
            raise NotExpressibleError(row.fault)
        seconds = row.number("seconds")
        if not seconds:
            raise NotExpressibleError("seconds: not published")
        method = METHODS.get(row.text("method"))
        if method is None:
            raise NotExpressibleError(f"method: {row.text('method')} is not modelled")
        model, precision = _model(row)
        gpus, hardware = _machines(row)
        cluster = load_cluster(hardware=hardware, nodes=max(1, gpus // 8), gpus_per_node=min(gpus, 8), profile="none")
        link = cluster.link(gpus, cluster.gpus_per_node)
        return Judged(
            predicted=sync_time(model, link, precision, method),
            measured_us=SECOND_US * seconds,
            in_sample=in_sample(row.text("source"), PHASE),
        )
    except NotExpressibleError as error:
        return str(error)


def _model(row: PublishedRow) -> tuple[ModelSpec, str]:
    """The model, and the dtype that its name ends in, bf16 without one."""
    name, _, dtype = row.text("model").partition(" ")
    path = shipped_model(re.sub(r"-Math|\.1(?=$)", "", name))
    if path is None:
        raise NotExpressibleError(f"model: {name} is not in configs/models")
    return load_model(path), dtype.lower() or "bf16"


def _machines(row: PublishedRow) -> tuple[int, str]:
    """GPUs of trainer and engines, and their hardware, which the placement or the source names."""
    text = f"{row.text('placement')} {row.text('source')}".lower()
    counts = re.match(r"(\d+)[^+]*?\+ (\d+)|(\d+) x", text)
    named = [name for name in known_hardware() if re.search(rf"\b{name}\b", text)]
    if not counts or not named:
        raise NotExpressibleError(f"placement: {row.text('placement')} names no GPUs of configs/hardware")
    return sum(int(count) for count in counts.groups() if count), named[0]


def _row(place: int, row: PublishedRow, judged: Judged | str) -> dict[str, Any]:
    reason = judged if isinstance(judged, str) else None
    return {
        "row_id": row.text("row_id") or f"row {place}",
        "source": row.text("source"),
        "model": row.text("model"),
        "gpu": row.text("placement"),
        "gpus": None,
        "mode": row.text("method"),
        "reason": reason,
        "open_length": False,
        "phases": {} if isinstance(judged, str) else {PHASE: phase_json(judged)},
    }
