"""The throughput of an RL step by the longest response and the responses to a prompt, as cells of a picture."""

from __future__ import annotations

from typing import Any

from predict.rl.search.length_map import LONGEST, LengthMap, N
from predict.rl.search.search import Candidate


def rl_heat_map_view(found: LengthMap) -> dict[str, Any]:
    """Columns are longest responses, rows responses to a prompt, under the names of `predict.report.page.heat_map.heat_map_view`."""
    return {
        "sequences": sorted({one.settings[LONGEST] for one in found.cells}),
        "microbatches": sorted({one.settings[N] for one in found.cells}),
        "own": list(found.own),
        "column": "longest response, tokens",
        "row": "n",
        "note": "tokens per second and GPU",
        "cells": [_cell(one) for one in found.cells],
    }


def _cell(one: Candidate) -> dict[str, Any]:
    cell: dict[str, Any] = {"sequence": one.settings[LONGEST], "microbatch": one.settings[N]}
    if one.step is None:
        return cell | {"reason": one.reason}
    memory, actor = one.step.memory, one.step.phase("update_actor")
    return cell | {
        "tokens_per_second_per_gpu": one.step.tokens_per_second_per_gpu,
        "mfu": actor and actor.mfu["palm"].mfu,
        "step_us": one.step.time.median_us,
        "memory_bytes": memory.worst.peak,
        "verdict": memory.verdict,
    }
