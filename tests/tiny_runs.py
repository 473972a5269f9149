"""Small training runs, and the Llama-like model that they are made of."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.blocks import Blocks
from predict.run.execution import Execution
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from sampling.call import Counted
from sampling.hardware.cluster import load_cluster

LLAMA = ModelSpec(
    name="llama-like",
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
    mixers=(Attention(),),
    mlp=Dense(),
)
MOE = replace(
    LLAMA,
    name="moe-like",
    layer_kinds=(LayerKind(),) + (LayerKind(sparse=True),) * 3,
    experts=Mixture(count=8, topk=2, ffn=32, shared_ffn=48),
)


def tiny_run(
    model: ModelSpec = LLAMA,
    *,
    hardware: str = "cpu",
    per_node: int = 8,
    cores: int | None = None,
    batch: tuple[int, int, int] = (8, 2, 16),
    precision: str = "fp32",
    execution: Execution = Execution(),  # noqa: B008  (frozen)
    **plan: Any,
) -> TrainingRun:
    """A run on as many devices as the plan has ranks, at most `per_node` per node. `batch` is (global, micro, seq_len); a
    CPU node has `cores`, one per rank by default."""
    chosen = Plan(**plan)
    world = chosen.tp * chosen.pp * chosen.cp * chosen.dp
    per_node = min(world, per_node)
    shared = {"cores": cores or per_node} if hardware == "cpu" else {}
    cluster = load_cluster(
        hardware=hardware, nodes=world // per_node, gpus_per_node=per_node, profile="nowhere", **shared
    )
    global_, micro, seq_len = batch
    return TrainingRun(
        name=f"tiny {model.name}",
        model=model,
        cluster=cluster,
        plan=chosen,
        batch=Batch(global_=global_, micro=micro, seq_len=seq_len),
        precision=precision,
        execution=execution,
    )


def calls_of(blocks: Blocks) -> Iterator[Counted]:
    """The calls of all blocks, each block once."""
    for repeated in blocks:
        yield from repeated.block.all_calls()
