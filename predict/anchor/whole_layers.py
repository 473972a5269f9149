"""The whole-layer operators that stand for a run's layers and ends, by unit: layer kinds, embedding, head."""

from __future__ import annotations

from predict.anchor.reduced_run import EMBEDDING, HEAD, kind_name, timed_kind
from predict.model.layer_kinds import LayerKind
from predict.run.training_run import TrainingRun
from predict.workload.chunks import common_fields, layer_call
from predict.workload.layers.local import WIDER
from predict.workload.layers.weights import padded_vocabulary
from sampling.arithmetic.operator import Operator
from sampling.cells.head import OutputHead
from sampling.cells.moe_layer import MoELayer
from sampling.operators.vocabulary import Embedding


def whole_layer_calls(run: TrainingRun) -> dict[str, Operator]:
    """By unit the module that is timed. Kinds that no module stands for are left out."""
    kinds = (timed_kind(run.model, kind) for kind in dict.fromkeys(run.model.kinds()))
    calls = {kind_name(kind): _layer(run, kind) for kind in kinds if kind}
    return {**calls, EMBEDDING: embedding_call(run), HEAD: head_call(run)}


def untimed_kinds(run: TrainingRun) -> list[str]:
    """Kinds of layers that stay simulated."""
    return [kind_name(kind) for kind in dict.fromkeys(run.model.kinds()) if timed_kind(run.model, kind) is None]


def embedding_call(run: TrainingRun) -> Embedding:
    return Embedding(**{**common_fields(run), "dtype": _wider(run)}, vocab=_vocabulary(run))


def head_call(run: TrainingRun) -> OutputHead:
    return OutputHead(**{**common_fields(run), "dtype": _wider(run)}, vocab=_vocabulary(run), norm=run.model.norm)


def _layer(run: TrainingRun, kind: LayerKind) -> Operator:
    model, experts = run.model, run.model.experts
    if not kind.sparse or experts is None:
        return layer_call(run)
    return MoELayer(
        dtype=run.precision,
        batch=run.batch.micro,
        seq_len=run.batch.seq_len,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        inter=experts.ffn,
        experts=experts.count,
        topk=experts.topk,
        distribution=run.execution.expert_load,
        gated=experts.gated,
        norm=model.norm,
        rope=model.rope,
        qkv_bias=model.attention_bias,
        shared_inter=experts.shared_ffn,
    )


def _wider(run: TrainingRun) -> str:
    return run.precision if run.execution.whole_layers else WIDER.get(run.precision, run.precision)


def _vocabulary(run: TrainingRun) -> int:
    vocab = run.model.vocab
    return vocab if run.execution.whole_layers else padded_vocabulary(vocab, run.plan.tp)
