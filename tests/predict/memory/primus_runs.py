"""The runs of Primus Projection's worked examples, and the components of a layer by name."""

from dataclasses import replace
from typing import Any

from predict.layers.latent import LatentAttention
from predict.layers.mixture import Mixture
from predict.memory.primus import PrimusComponent, PrimusLayer
from predict.model.spec import LayerKind, ModelSpec
from predict.run.training_run import TrainingRun
from tests.tiny_runs import LLAMA, tiny_run

SPARSE = LayerKind(sparse=True)

MIXTRAL_8X22B = replace(
    LLAMA,
    name="mixtral-8x22b",
    layers=56,
    hidden=6144,
    heads=48,
    kv_heads=8,
    head_dim=128,
    ffn=16384,
    vocab=100352,  # what the printed 616,562,688 parameters of the embedding say
    layer_kinds=(SPARSE,) * 56,
    experts=Mixture(count=8, topk=2, ffn=16384),
)

MOE_4_5T = replace(
    MIXTRAL_8X22B,
    name="moe-4.5t",
    layers=1,
    hidden=8192,
    heads=64,
    kv_heads=1,
    layer_kinds=(SPARSE,),
    experts=Mixture(count=384, topk=36, ffn=2048, shared_ffn=2048),
)

DEEPSEEK_V2 = replace(
    MIXTRAL_8X22B,
    name="deepseek-v2",
    layers=60,
    hidden=5120,
    heads=128,
    kv_heads=128,
    ffn=12288,
    layer_kinds=(LayerKind(), *(SPARSE,) * 59),
    head_dim=192,
    mixers=(LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128),),
    experts=Mixture(count=160, topk=6, ffn=1536, shared_ffn=3072),
)


def run(model: ModelSpec, batch: tuple[int, int, int] = (128, 2, 8192), **plan: Any) -> TrainingRun:
    return tiny_run(model, hardware="mi355x", batch=batch, precision="bf16", **plan)


PRINTED = run(MIXTRAL_8X22B, pp=4, ep=8, dp=8)
"""32 GPUs, of which EP × PP leave one for Primus's DP."""


def components(layer: PrimusLayer) -> dict[str, PrimusComponent]:
    return {component.name: component for component in layer.components}
