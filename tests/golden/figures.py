"""Figures of our own that must not move unnoticed: `python -m tests.golden.figures` writes them into figures.json.

They stand in for tables measured by others, which lie outside the repository: what agrees with those today is held here.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from predict.huggingface.config_json import load_model
from predict.memory.activations import layer_activations
from predict.model.spec import DENSE, LayerKind
from predict.prices.collectives import collective_us
from predict.prices.kernels import operator_us
from predict.run.model_flops import attention_flops_per_token, model_flops_per_token
from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, simulate
from predict.serving.batch import Seen
from predict.serving.fleet import ROUTERS, Ways
from predict.serving.kv_cache import BlockPool
from predict.serving.simulate import Served, serve
from predict.serving.speculation import Speculation
from predict.serving.step_table import StepTable
from predict.serving.traffic import Traffic
from sampling.call import Call, Phase
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, ReduceScatter
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from tests.expert_calls import expert_mlp
from tests.predict.memory.counted_layers import PROFILES, rank_of
from tests.predict.serving.servers import chained, engine, fleet, unit_table

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


COUNTS = ((1, 3), (3, 7), (4, 16), (5, 12), (6, 30))
"""Ranks and microbatches of the orders below."""


def orders() -> dict[str, Any]:
    """A checksum of every schedule's actions, and their makespan with times that differ by rank and chunk, by which some are solved."""
    figures = {}
    for name in registry.names():
        for ranks, microbatches in COUNTS:
            for chunks in (1, 2, 3):
                if registry.get(name).refusal(ranks, chunks, microbatches):
                    continue
                draw = np.random.default_rng(ranks)
                forward, backward_input, backward_weight = draw.uniform(0.5, 2, (3, ranks, chunks)).round(2)
                uneven = ChunkTimes(
                    forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=0.2
                )
                for limit in (None, ranks * chunks) if registry.get(name).solver else (None,):
                    made = registry.order(
                        name, ranks=ranks, chunks=chunks, microbatches=microbatches, times=uneven, memory_limit=limit
                    )
                    figures[f"{name}, {ranks} x {chunks}, {microbatches} microbatches, limit {limit}"] = {
                        "actions": zlib.crc32(b"".join(np.ascontiguousarray(row).tobytes() for row in made.rows)),
                        "makespan": simulate(made, replace(uneven, blocking=microbatches % 2 == 1)).makespan,
                    }
    return figures


def _priced(draw: random.Random) -> StepTable:
    """Steps whose every sum has a price, some with sliding layers or drafts."""
    drafts = draw.choice((0, 0, 2))
    return replace(
        unit_table(most_decodes=8, most_tokens=1200),
        attention_us=np.linspace(0, 1, 27).reshape(9, 3) ** 2,
        contexts=np.array([0.0, 60.0, 512.0]),
        decode_us=1 + np.arange(9) / 8,
        pair_us=1 / 64,
        context_us=1 / 32,
        whole_prompt=draw.random() < 0.3,
        seen=Seen(most=draw.choice((0, 24))),
        window_attention_us=np.zeros((9, 3)),
        window_pair_us=1 / 128,
        window_context_us=1 / 16,
        request_us=0.25,
        speculation=Speculation(
            kind="ngram" if drafts else "none", tokens=drafts or 1, acceptance=0.6 if drafts else None
        ),
    )


def _told(draw: random.Random, count: int) -> Traffic:
    """Requests whose prompts branch off one another, as conversations do."""
    sizes = tuple(draw.randint(8, 90) for _ in range(8))
    before = [draw.randrange(-1, segment) for segment in range(len(sizes))]
    each = []
    for arrival in sorted(draw.uniform(0, 1500) for _ in range(count)):
        chain: list[int] = []
        segment = draw.randrange(-1, len(sizes))
        while segment >= 0:
            chain.insert(0, segment)
            segment = before[segment]
        prompt = sum(sizes[part] for part in chain) + draw.randint(1, 60)
        each.append((arrival, prompt, draw.randint(1, 40), tuple(chain)))
    return chained(*each, sizes=sizes)


def _summed(found: Served) -> dict[str, float]:
    figures = {
        "steps": found.steps,
        "busy_us": found.busy_us,
        "first_us": float(found.first_us.sum()),
        "last_us": float(found.last_us.sum()),
        "preemptions": found.preemptions,
        "chunk_tokens": found.chunk_tokens,
        "found_tokens": found.found_tokens,
        "mean_requests": found.mean_requests,
        "mean_blocks": found.mean_blocks,
        "most_blocks": found.most_blocks,
    }
    return figures | (dict(found.fleet.brought_tokens) if found.fleet else {})


def engines() -> dict[str, Any]:
    """What engines do under random loads that fill their caches; with vLLM's own scheduler it agrees in tests/oracles."""
    figures = {}
    for case in range(24):
        draw = random.Random(f"engine {case}")
        traffic, table = _told(draw, 30), _priced(draw)
        pool = BlockPool(blocks=40, window=table.seen.most, window_share=0.5, state_blocks=draw.choice((0.0, 1.5)))
        if draw.random() < 0.2:
            traffic = replace(traffic, arrival_us=np.zeros(30), in_flight=4)
        settings = engine(
            max_num_batched_tokens=draw.choice((64, 640)),
            prefix_caching=draw.random() < 0.8,
            asynchronous=draw.random() < 0.5,
            never_preempts=draw.random() < 0.2,
            chunked_prefill=True,
        )
        figures[f"case {case}"] = _summed(serve(settings, pool, table, traffic, traced=draw.choice((0, 10**4))))
    return figures


def fleets() -> dict[str, Any]:
    """What engines do beside one another: behind a router, with pools for prompts, and with slower memory behind their caches."""
    ways = Ways(
        names=("prefill", "host", "remote"),
        token_us=(0.25, 0.02, 0.1),
        start_us=(2.0, 0.0, 0.5),
        capacity=(0, 40, 70),
        overlap=0.75,
    )
    figures = {}
    for case in range(16):
        draw = random.Random(f"fleet {case}")
        found = fleet(
            _told(draw, 40),
            engines=draw.randint(1, 3),
            prefill=draw.choice((0, 0, 1, 2)),
            blocks=28,
            ways=ways,
            table=_priced(draw),
            router=draw.choice(ROUTERS),
            asynchronous=draw.random() < 0.5,
            max_num_batched_tokens=draw.choice((64, 640)),
        )
        figures[f"case {case}"] = _summed(found)
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
    section.__name__: section
    for section in (schedules, orders, engines, fleets, models, kernels, collectives, activations)
}


def main() -> None:
    figures = {name: section() for name, section in SECTIONS.items()}
    PATH.write_text(json.dumps(figures, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
