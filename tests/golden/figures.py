"""Figures of our own that must not move unnoticed: `python -m tests.golden.figures` writes them into figures.json.

They stand in for tables measured by others, which lie outside the repository: what agrees with those today is held here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from predict.huggingface.config_json import load_model
from predict.memory.activations import layer_activations
from predict.model.spec import DENSE, LayerKind
from predict.prices.collectives import collective_us
from predict.prices.kernels import operator_us
from predict.run.model_flops import attention_flops_per_token, model_flops_per_token
from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, simulate
from sampling.call import Call, Phase
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, ReduceScatter
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from tests.expert_calls import expert_mlp
from tests.predict.memory.counted_layers import PROFILES, rank_of

PATH = Path(__file__).with_name("figures.json")
DEVICES = ("a100-80gb", "h100-sxm", "h200", "b200", "mi300x")
PRODUCTS: Mapping[str, Call] = {
    "gemm": Gemm(dtype="bf16", m=8192, n=4096, k=4096),
    "gemm wide": Gemm(dtype="bf16", m=1024, n=28672, k=8192),
    "attention": Attention(dtype="bf16", batch=1, seq_len=4096, heads=32, kv_heads=8, head_dim=128, causal=True),
    "experts": expert_mlp(dtype="bf16", tokens=4096, hidden=2048, inter=768, topk=8, experts=128, ep=8),
}
COLLECTIVES = (AllReduce, AllGather, ReduceScatter, AllToAll)
PHASES: tuple[Phase, ...] = ("forward", "backward")
LAYERS = {
    "llama3-70b": DENSE,
    "mixtral-8x22b": LayerKind(sparse=True),
    "deepseek-v3": LayerKind(sparse=True),
    "qwen3.5-35b-a3b": LayerKind(mixer="linear", sparse=True),
}


def schedules() -> dict[str, Any]:
    """Makespan, mean bubble and activations kept (chunks, by rank) of every schedule, with unequal forward and backward times."""
    figures = {}
    for name in registry.names():
        chunks = next(count for count in (1, 2) if registry.get(name).refusal(4, count, 8) is None)
        times = ChunkTimes(forward=1.0, backward_input=1.25, backward_weight=0.75, p2p=0.125)
        timeline = simulate(registry.order(name, ranks=4, chunks=chunks, microbatches=8, times=times), times)
        figures[name] = {
            "makespan": timeline.makespan,
            "bubble": timeline.bubble_fraction,
            "peak_chunks": list(timeline.peak_chunks()),
        }
    return figures


def models() -> dict[str, Any]:
    """Parameters, and model FLOPs per token with attention's part of them, of every shipped model."""
    specs = {path.stem: load_model(path) for path in sorted((CONFIGS / "models").glob("*.json"))}
    return {
        name: {
            "parameters": spec.parameters,
            "active_parameters": spec.active_parameters,
            "flops_per_token": model_flops_per_token(spec, 1024),
            "attention_flops_per_token": attention_flops_per_token(spec, 1024),
        }
        for name, spec in specs.items()
    }


def kernels() -> dict[str, Any]:
    """Prior time in µs and half-width in log time of kernels."""
    gpus = {device: load_cluster(hardware=device, nodes=1, gpus_per_node=1, profile="golden").gpu for device in DEVICES}
    return {
        f"{device}, {name}, {phase}": list(operator_us(call, phase, gpu))  # type: ignore[arg-type]
        for device, gpu in gpus.items()
        for name, call in PRODUCTS.items()
        for phase in PHASES
    }


def collectives() -> dict[str, Any]:
    """Prior time in µs of collectives inside a node and across four."""
    clusters = {device: load_cluster(hardware=device, nodes=4, gpus_per_node=8, profile="golden") for device in DEVICES}
    return {
        f"{device}, {kind.NAME}, {size} B, {ranks} ranks": collective_us(
            kind(size_bytes=size, ranks=ranks, ranks_per_node=8), cluster
        )
        for device, cluster in clusters.items()
        for kind in COLLECTIVES
        for size in (2**16, 2**24, 2**30)
        for ranks in (8, 32)
    }


def activations() -> dict[str, Any]:
    """Bytes that a layer keeps for its backward, by component, of every memory profile."""
    return {
        f"{model}, {profile}, {recompute}": dict(
            layer_activations(rank_of(model, plan__recompute=recompute), kind, of, recompute=recompute).components
        )
        for model, kind in LAYERS.items()
        for profile, of in PROFILES.items()
        for recompute in ("none", "full")
    }


SECTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    section.__name__: section for section in (schedules, models, kernels, collectives, activations)
}


def main() -> None:
    figures = {name: section() for name, section in SECTIONS.items()}
    PATH.write_text(json.dumps(figures, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
