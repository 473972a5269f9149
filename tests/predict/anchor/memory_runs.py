"""Tiny runs to count the memory of, and what a benchmark of them holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from predict.anchor.memory_part import VERSION, memory_run, parameters_of, place_of
from predict.measure.benchmark.memory_worker import count_bytes
from predict.model.layer_kinds import LayerKind
from predict.model.parts.mixture import Experts
from predict.model.spec import ModelSpec
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from sampling.hardware.cluster import load_cluster

CPU = torch.device("cpu")
DENSE = ModelSpec(
    name="tiny",
    layers=4,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    ffn=96,
    vocab=512,
    gated=True,
    norm="rms",
    rope=True,
    attention_bias=False,
    mlp_bias=False,
    tied=False,
    max_positions=0,
)
MIXED = replace(
    DENSE,
    name="tiny-moe",
    layer_kinds=(LayerKind(),) + (LayerKind(sparse=True),) * 3,
    experts=Experts(count=8, topk=2, ffn=32, shared_ffn=48),
)
MODELS = {"dense": DENSE, "moe": MIXED, "tied": replace(DENSE, tied=True)}


def run(model: ModelSpec = DENSE, *, precision: str = "fp32", **plan: Any) -> TrainingRun:
    """On one CPU thread a rank; more ranks than a node of two has go on further nodes."""
    chosen = Plan(**plan)
    world = chosen.tp * chosen.pp * chosen.cp * chosen.dp
    per_node = min(world, 2)
    return TrainingRun(
        name="tiny",
        model=model,
        cluster=load_cluster(
            hardware="cpu", nodes=world // per_node, gpus_per_node=per_node, profile="nowhere", cores=per_node
        ),
        plan=chosen,
        batch=Batch(global_=8 * chosen.dp, micro=2, seq_len=32),
        precision=precision,
    )


def counted(subject: TrainingRun) -> dict[str, Any]:
    return count_bytes(memory_run(subject, 1), CPU)


def artifact_of(subject: TrainingRun) -> dict[str, Any]:
    """As `run_memory_benchmark` writes it, without fresh processes."""
    cut = memory_run(subject, 1)
    described = {"version": VERSION, **place_of(cut), "parameters": parameters_of(cut), "world_size": 1}
    return {**described, **count_bytes(cut, CPU)}
