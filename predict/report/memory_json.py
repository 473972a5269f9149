"""The memory estimate as `predict memory --json` prints it; `version` changes when a key changes its meaning. Sizes are bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.rank_memory import RankMemory

VERSION = 1
TERMS = ("parameters", "gradients", "optimizer", "activations", "working", "buffers", "slack", "device")
"""What a rank's peak adds up from."""


def memory_json(memory: MemoryEstimate, advice: Iterable[Advice] = ()) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": memory.run.name,
        "schedule": memory.run.plan.schedule,
        "profile": memory.profile.name,
        "ranks": [rank_json(rank) for rank in memory.ranks],
        "worst_rank": memory.worst.rank,
        "layers": [
            {
                "unit": unit.name,
                "recompute": unit.recompute,
                "count": count,
                "elements": unit.weights.total,
                "activations": of.kept_bytes,
                "components": dict(of.components),
                "forward_working": of.forward_working_bytes,
                "backward_working": of.backward_working_bytes,
            }
            for unit, count, of in memory.units
        ],
        "buffers": [asdict(buffer) for buffer in memory.buffers],
        **verdict_json(memory),
        "advice": [asdict(each) | {"cost": each.cost} for each in advice],
    }


def rank_json(rank: RankMemory) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "layers": rank.layers,
        "elements": rank.elements,
        **{term: getattr(rank, term) for term in TERMS},
        "allocated": rank.allocated,
        "reserved": rank.reserved,
        "peak": rank.peak,
        "when": asdict(rank.when),
    }


def verdict_json(memory: MemoryEstimate) -> dict[str, Any]:
    return {
        "point_bytes": memory.point_bytes,
        "upper_bytes": memory.upper_bytes,
        "capacity_bytes": memory.capacity_bytes,
        "headroom_bytes": memory.headroom_bytes,
        "verdict": memory.verdict,
    }
