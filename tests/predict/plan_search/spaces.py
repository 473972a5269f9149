"""Small spaces of many kinds, as questions of a search."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from predict.config.document import Document
from predict.plan_search.axes import Question, read_questions
from predict.plan_search.legal import Rows, Space
from predict.plan_search.opening import Openings, opened, with_openings

AUTO = "auto"


def question(
    model: str | Mapping[str, Any], nodes: int, per_node: int, content: Mapping[str, Any], hardware: str = "h100-sxm"
) -> Question:
    """The question of a model on a cluster; `content` are the plan, batch and execution, and the precision."""
    sections: dict[str, Any] = {
        "model": model,
        "cluster": {"hardware": hardware, "nodes": nodes, "gpus_per_node": per_node, "profile": "none"},
        "precision": "bf16",
        **content,
    }
    batch = {"global": 32, "seq_len": 1024, **sections.get("batch", {})}
    (made,) = read_questions(Document(name="space", content={**sections, "batch": batch}, sources={}))
    return made


def in_full(space: Space) -> Space:
    """The legal plans, with all those that a search opens plan by plan."""
    rows, opening = with_openings(space)
    several = np.flatnonzero(opening.several).tolist()
    plans = [space.rows, *(plans_of(rows, opening, row) for row in several)]
    axes = tuple(replace(axis, by_plan=False) for axis in space.question.axes)
    return replace(rows, question=replace(space.question, axes=axes), rows=np.concatenate(plans))


def plans_of(space: Space, opening: Openings, row: int) -> Rows:
    """All plans that a row stands for."""
    made, own = opened(space, opening, [row])
    parts = [made.rows[own.single], *(plans_of(made, own, each) for each in np.flatnonzero(own.several).tolist())]
    return np.concatenate(parts)


DENSE: tuple[Mapping[str, Any], ...] = (
    {"plan": {"cp": 1, "zero": 1, "recompute": "none"}, "batch": {"micro": [1, 2]}},
    {"plan": {"cp": 1, "tp": [1, 2], "recompute": AUTO, "zero": 1}, "batch": {"micro": 1}},
    {"plan": {"pp": [1, 2, 4], "cp": AUTO, "vpp": [1, 2], "recompute": "full", "zero": [0, 1]}, "batch": {"micro": 1}},
    {"plan": {"pp": 4, "tp": 2, "first_stage_layers": AUTO, "vpp": 1}, "batch": {"micro": 1}},
    {"plan": {"pp": 2, "tp": 2, "recompute": "full", "recompute_method": "block", "recompute_layers": "1..8..1", "vpp": 1}, "batch": {"micro": 1}},
    {"plan": {"pp": [2, 4], "tp": 1, "schedule": "best", "vpp": [1, 2], "recompute": "none"}, "batch": {"micro": 1}},
    {"plan": {"tp": AUTO, "pp": 1, "cp": 1, "zero": [1, 2, 3], "shard": [0, 2]}, "execution": {"framework": "torchtitan"}, "batch": {"micro": 1}},
    {"plan": {"zero": AUTO, "recompute": AUTO}, "execution": {"framework": "fsdp"}, "batch": {"micro": [1, 2]}},
    {"plan": {"pp": [2, 4], "vpp": [1, 2], "tp": 1, "zero": 2, "schedule": AUTO, "recompute": "none"}, "execution": {"framework": "torchtitan"}, "batch": {"micro": 1}},
    {"plan": {"tp": 4, "pp": 2, "cp": 1, "vpp": 1, "recompute": "none"}, "execution": {"overlap_tp": AUTO, "overlap_p2p": AUTO, "overlap_gradients": AUTO}, "batch": {"micro": [1, 2]}},
    {"plan": {"tp": 2, "pp": [1, 2], "count_embedding": AUTO, "count_loss": AUTO, "vpp": [1, 2]}, "batch": {"micro": 1}, "precision": "fp8"},
    {"plan": {"tp": [1, 2, 4], "pp": [1, 2], "zero": 1, "recompute": "selective", "recompute_modules": AUTO, "vpp": 1, "cp": 1}, "batch": {"micro": 2}},
    {"plan": {"pp": [2, 4], "tp": 1, "vpp": [1, 2], "zero": 1, "schedule": ["zb-h1", "zb-auto", "zbv", "v-half", "dualpipe", "dualpipev"], "recompute": ["none", "selective", "full"]}, "batch": {"micro": 1}},
    {"plan": {"pp": 2, "tp": 2, "vpp": [1, 2], "schedule": ["best", "zb-h2", "interleaved-zb"], "recompute": "full", "recompute_method": "block", "recompute_layers": [1, 4, 8]}, "batch": {"micro": 1}},
    {"plan": {"pp": [2, 4], "tp": 1, "vpp": 1, "schedule": ["1f1b", "zb-h1"], "recompute": "full", "layout": AUTO, "zero": 1}, "batch": {"micro": 1}},
)  # fmt: skip
"""Of a dense model on eight GPUs."""
MIXED: tuple[Mapping[str, Any], ...] = (
    {"plan": {"pp": 1, "cp": 1, "etp": 1, "recompute": "full"}, "batch": {"micro": 1}},
    {"plan": {"pp": [1, 2], "tp": [1, 2], "ep": AUTO, "etp": AUTO, "cp": 1, "vpp": 1, "recompute": "none", "zero": 1}, "batch": {"micro": 1}},
    {"plan": {"pp": 2, "tp": 1, "ep": [1, 4, 8], "etp": 1, "cp": 1, "recompute": AUTO}, "execution": {"dispatch": AUTO}, "batch": {"micro": 1}},
    {"plan": {"pp": 1, "tp": 2, "ep": [2, 8], "cp": AUTO, "etp": 1, "recompute": "selective", "recompute_modules": AUTO}, "batch": {"micro": [1, 2]}},
    {"plan": {"pp": [1, 2], "vpp": [1, 2], "tp": 1, "ep": [8, 16], "etp": 1, "cp": 1, "recompute": "none", "zero": 1}, "execution": {"overlap_ep": ["none", "microbatch"]}, "batch": {"micro": 1, "global": [128, 64, 32, 16], "seq_len": 4096}},
    {"plan": {"pp": [2, 4], "vpp": 2, "tp": 1, "ep": [2, 4], "etp": 1, "cp": 1, "zero": 1, "schedule": ["dualpipe", "dualpipev", "zbv"], "recompute": ["none", "selective", "full"], "recompute_modules": ["core_attn", "layernorm, moe_act"]}, "execution": {"overlap_ep": "microbatch"}, "batch": {"micro": 1}},
    {"plan": {"pp": [1, 2], "tp": 2, "ep": [1, 4], "etp": 1, "cp": 1, "vpp": 1, "recompute": "none", "zero": 1}, "execution": {"framework": "nemo", "stragglers": AUTO, "waiting_time": [0.5, 1.0], "step_overhead_us": [0, 1000]}, "batch": {"micro": 1}},
)  # fmt: skip
"""Of a mixture of experts on sixteen GPUs."""
