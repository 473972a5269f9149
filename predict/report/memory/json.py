"""The JSON of `predict memory --json`. Sizes are bytes; `version` changes when the meaning of a key changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.primus.projection import PrimusMemory
from predict.memory.rank_memory import TERMS, RankMemory

VERSION = 1


def memory_json(memory: MemoryEstimate, advice: Iterable[Advice] = ()) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": memory.run.name,
        "feasible": memory.feasible,
        "schedule": memory.run.plan.schedule,
        "memory_profile": memory.memory_profile.name,
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


def primus_json(memory: PrimusMemory) -> dict[str, Any]:
    return {
        "formula": "primus",
        "run": memory.run,
        "pipeline_rank": memory.pipeline_rank,
        "parameters": {"total": memory.total_parameters, "rank": memory.parameters},
        "bytes_per_parameter": memory.bytes_per_parameter,
        "weight_bytes": memory.weight_bytes,
        "gradient_bytes": memory.gradient_bytes,
        "optimizer_bytes": memory.optimizer_bytes,
        "base_activation_bytes": memory.base_activation_bytes,
        "working_bytes": memory.working_bytes,
        "activation_bytes": memory.activation_bytes,
        "total_bytes": memory.total_bytes,
        "recomputed_layers": memory.recomputed_layers,
        "factors": {**asdict(memory.factors), "product": memory.factors.product},
        "components": [asdict(component) for component in memory.outside_layers],
        "layers": [
            {
                "name": layer.name,
                "count": count,
                "parameters": layer.parameters,
                "activation_bytes": layer.activation_bytes,
                "components": [asdict(component) for component in layer.components],
            }
            for layer, count in memory.layers
        ],
        "differences": dict(memory.differences),
    }
