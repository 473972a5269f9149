"""The heat map of a page: throughput by sequence length and microbatch, or of RL by longest response and responses to a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from predict.config.draft import Document
from predict.plan_search.rl_space import LONGEST, Candidate, LengthMap, N
from predict.plan_search.sweep import Sweep, SweptRun, sweep
from predict.run.training_run import TrainingRun
from predict.serialise import as_json, picked
from predict.step.prediction import Prediction

SEQUENCE, MICROBATCH = "batch.seq_len", "batch.micro"
LEAST_SEQUENCE = 128


def heat_map_sweep(
    config: Path | str | Document,
    overrides: Sequence[str],
    run: TrainingRun,
    predict: Callable[[TrainingRun], Prediction],
) -> Sweep:
    """The run with sequences from a quarter to four times as long, and microbatches up to eight times as large or to 8."""
    sequences = [
        length for factor in (0.25, 0.5, 1, 2, 4) if (length := int(run.batch.seq_len * factor)) >= LEAST_SEQUENCE
    ]
    micros = sorted({1, 2, 4, run.batch.micro, run.batch.micro * 2})
    vary = [
        f"{MICROBATCH}={','.join(map(str, micros))}",
        f"{SEQUENCE}={','.join(map(str, sequences or [run.batch.seq_len]))}",
    ]
    return sweep(config, vary, overrides, predict)


def heat_map_view(found: Sweep, run: TrainingRun) -> dict[str, Any]:
    """Columns are sequence lengths, rows microbatches; a cell has tokens per second and GPU, and its verdict or why it cannot run."""
    values = {each.path: list(each.values) for each in found.varied}
    return {
        "sequences": values[SEQUENCE],
        "microbatches": values[MICROBATCH],
        "own": [run.batch.seq_len, run.batch.micro],
        "column": "sequence length",
        "row": "microbatch",
        "note": f"tokens per second and GPU, {run.batch.global_:,} sequences per step",
        "cells": [_cell(row) for row in found.rows],
    }


def _cell(row: SweptRun) -> dict[str, Any]:
    cell: dict[str, Any] = {"sequence": row.values[SEQUENCE], "microbatch": row.values[MICROBATCH]}
    if row.prediction is None:
        return cell | {"reason": row.reason}
    return cell | picked(
        row.prediction,
        "tokens_per_second_per_gpu mfu step_us=median_us memory_bytes=memory.point_bytes verdict=memory.verdict",
    )


def rl_heat_map_view(found: LengthMap) -> dict[str, Any]:
    """Columns are longest responses, rows responses to a prompt, under the names of `heat_map_view`."""
    return {
        "sequences": sorted({one.settings[LONGEST] for one in found.cells}),
        "microbatches": sorted({one.settings[N] for one in found.cells}),
        "own": as_json(found.own),
        "column": "longest response, tokens",
        "row": "n",
        "note": "tokens per second and GPU",
        "cells": [_rl_cell(one) for one in found.cells],
    }


def _rl_cell(one: Candidate) -> dict[str, Any]:
    cell: dict[str, Any] = {"sequence": one.settings[LONGEST], "microbatch": one.settings[N]}
    if one.step is None:
        return cell | {"reason": one.reason}
    actor = one.step.phase("update_actor")
    return (
        cell
        | picked(one.step, "tokens_per_second_per_gpu")
        | {"mfu": actor and actor.mfu["palm"].mfu}
        | picked(one.step, "step_us=time.median_us memory_bytes=memory.worst.peak verdict=memory.verdict")
    )
