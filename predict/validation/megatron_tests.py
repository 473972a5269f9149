"""The run of a row of Megatron-LM's functional tests: sizes, plan and settings by the test's own flags.

The tests log torch's allocated bytes on the last global rank (Megatron-LM, training/training.py: the TensorBoard writer), current
after the step and the largest since the start.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from predict.config.load import build
from predict.convert.megatron import graphs_of
from predict.huggingface.families.family import MOST_LAYERS
from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.layers.mixture import Mixture
from predict.layers.registry import mixer_of_text
from predict.model.spec import LayerKind, ModelSpec
from predict.run.execution import COPIES, IN_TURN, PRIMARY
from predict.run.training_run import TrainingRun
from predict.validation.published_models import sparse_layers
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import counted_ends, hardware_of, modules_of
from predict.validation.published_software import precision_of
from sampling.errors import ConfigError
from sampling.operators.experts import PER_EXPERT

STATE, PEAK = "mem_allocated_bytes", "mem_max_allocated_bytes"
"""Columns of these tables: allocated bytes after the step, and at most."""
BLAS_WORKSPACE_MIB = 32
"""The environment of all but a few of the tests: CUBLAS_WORKSPACE_CONFIG=:4096:8, eight workspaces of 4 MiB."""
BACKENDS = {"": "best", "fused": "cudnn", "flash": "fa2", "unfused": "unfused"}


def is_megatron_test(row: PublishedRow) -> bool:
    return bool(row.text(STATE) or row.text(PEAK))


def run_of(row: PublishedRow) -> TrainingRun:
    """NotExpressibleError, with the reason, for a row that cannot be expressed as a run."""
    if row.fault:
        raise NotExpressibleError(row.fault)
    if row.text("kind") == "hybrid":
        raise NotExpressibleError(
            "kind: hybrid: the table states neither the sizes of its Mamba layers nor their pattern"
        )
    precision, recipe = precision_of(row)
    execution = _execution(row) | ({"fp8_recipe": row.text("fp8_recipe") or recipe} if precision == "fp8" else {})
    model = _model(row)
    sections: dict[str, Any] = {
        "cluster": _cluster(row),
        "plan": _plan(row, model),
        "batch": {"global": row.integer("gbs"), "micro": row.integer("mbs"), "seq_len": row.integer("seq_len")},
        "execution": execution,
        "precision": precision,
    }
    try:
        return build(row.row_id, model, sections)
    except ConfigError as error:
        raise NotExpressibleError(str(error).replace(f"{row.row_id}: ", "")) from None


def _model(row: PublishedRow) -> ModelSpec:
    layers, heads = row.integer("layers", most=MOST_LAYERS), row.integer("heads")
    bias, mixer = bool(row.integer("linear_bias", least=0)), mixer_of_text(row.text("mla"))
    experts = _experts(row)
    sparse = sparse_layers(row.text("moe_layer_freq"), layers) if experts else []
    return ModelSpec(
        name=row.text("test_case") or "model",
        layers=layers,
        hidden=row.integer("hidden"),
        heads=heads,
        kv_heads=row.integer("kv_heads", heads),
        head_dim=mixer.query_dim if mixer else row.integer("head_dim"),
        ffn=row.integer("ffn"),
        vocab=row.integer("vocab_padded"),
        gated=bool(row.integer("gated_mlp", least=0)),
        norm="rms" if "rms" in row.text("norm").lower() else "layer",
        rope=row.text("position") == "rope",
        attention_bias=bias,
        mlp_bias=bias,
        tied=bool(row.integer("tied_embedding", least=0)),
        max_positions=row.integer("seq_len"),
        qk_norm=_flag(row, "qk-layernorm") == "1",
        mtp_layers=row.integer("mtp_layers", 0, least=0),
        layer_kinds=tuple(LayerKind(sparse=each) for each in sparse) if any(sparse) else (),
        mixers=(mixer or Attention(),),
        mlp=Dense(),
        experts=experts,
    )


def _experts(row: PublishedRow) -> Mixture | None:
    if not row.number("experts"):
        return None
    return Mixture(
        count=row.integer("experts"),
        topk=row.integer("topk"),
        ffn=row.integer("moe_ffn", row.integer("ffn")),
        shared_ffn=row.integer("shared_ffn", 0, least=0),
        gated=bool(row.integer("gated_mlp", least=0)),
    )


def _cluster(row: PublishedRow) -> dict[str, Any]:
    """One node, whatever the test ran on: a network moves no tensors' bytes."""
    ranks = row.integer("tp") * row.integer("pp") * row.integer("cp")
    return {"hardware": hardware_of(row), "nodes": 1, "gpus_per_node": ranks * _replicas(row)}


def _replicas(row: PublishedRow) -> int:
    """The replicas of a test: as stated, as its GPUs make them, or the fewest that its experts fold into."""
    ranks, in_stage = row.integer("tp") * row.integer("pp") * row.integer("cp"), row.integer("tp") * row.integer("cp")
    if row.text("dp") or row.text("n_gpus"):
        return row.integer("dp", row.gpus() // ranks)
    if not row.number("experts"):
        raise NotExpressibleError("n_gpus: not stated, nor dp, and no experts say how many GPUs there are at least")
    return math.lcm(row.integer("ep") * _etp(row), in_stage) // in_stage


def _etp(row: PublishedRow) -> int:
    """Without the flag, experts are divided as the other weights are (Megatron-LM, arguments.py)."""
    return row.integer("etp", row.integer("tp"))


def _plan(row: PublishedRow, model: ModelSpec) -> dict[str, Any]:
    degrees = {name: row.integer(name) for name in ("tp", "pp", "cp", "ep", "vpp")} | {"dp": _replicas(row)}
    plan: dict[str, Any] = degrees | {
        "etp": _etp(row) if model.experts else 1,
        "sp": degrees["tp"] > 1 and row.integer("seq_parallel", 0, least=0) == 1,
        "schedule": "interleaved-1f1b" if degrees["vpp"] > 1 else "1f1b",
        "zero": _zero(row) if degrees["dp"] * degrees["cp"] > 1 else 0,
        "recompute": row.text("recompute") or "none",
    }
    if plan["recompute"] == "selective" and row.text("recompute_modules"):
        plan["recompute_modules"] = modules_of(row.text("recompute_modules"))
    if plan["recompute"] == "full":
        plan |= {"recompute_method": row.text("recompute_method"), "recompute_layers": row.integer("recompute_layers")}
    instances = int(_flag(row, "num-distributed-optimizer-instances") or 1)
    if instances > 1:
        plan["shard"] = degrees["dp"] * degrees["cp"] // instances
    for key, (flag, read) in PLAN_FLAGS.items():
        if text := _flag(row, flag):
            plan[key] = read(text)
    if not plan.keys() & PLAN_FLAGS.keys():
        plan |= counted_ends(model, degrees["pp"] * degrees["vpp"])
    return plan


PLAN_FLAGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "first_stage_layers": ("decoder-first-pipeline-num-layers", int),
    "last_stage_layers": ("decoder-last-pipeline-num-layers", int),
    "layout": ("pipeline-model-parallel-layout", str),
    "count_embedding": ("account-for-embedding-in-pipeline-split", int),
    "count_loss": ("account-for-loss-in-pipeline-split", int),
}
"""Keys of `plan`, and the flags of Megatron-LM that set them."""


def _zero(row: PublishedRow) -> int:
    if row.text("fsdp"):
        return 3 if "params" in row.text("fsdp") else 2
    return row.integer("distributed_optimizer", 0, least=0, most=1)


def _execution(row: PublishedRow) -> dict[str, Any]:
    backend = row.text("attention_backend")
    if backend not in BACKENDS:
        raise NotExpressibleError(f"attention_backend: {backend} is not one of {', '.join(filter(None, BACKENDS))}")
    local = row.text("transformer_impl") == "local"  # its core attention is two products
    in_bf16 = _flag(row, "grad-reduce-in-bf16") == "1"
    fp8_weights = (PRIMARY if _flag(row, "fp8-param-gather") == "1" else COPIES) if row.text("fp8_recipe") else ""
    return {
        "framework": "megatron-local" if local else "megatron-core",
        "attention": "unfused" if local else BACKENDS[backend],
        "fuse_gradients": _flag(row, "no-gradient-accumulation-fusion") != "1",
        "gradient_dtype": "bf16" if in_bf16 else "fp16" if "fp16" in row.text("precision").lower() else "fp32",
        "fp8_weights": fp8_weights,
        "optimizer": "muon" if row.text("optimizer") == "muon" else "adamw",
        "dropout": _has_dropout(row),
        "overlap_tp": "pipelined" if _flag(row, "tp-comm-overlap") == "1" else "none",
        "fuse_loss": _flag(row, "cross-entropy-loss-fusion") == "1",
        "expert_products": PER_EXPERT if _flag(row, "moe-grouped-gemm") == "1" else IN_TURN,
        "blas_workspace_mib": BLAS_WORKSPACE_MIB,
        "cuda_graphs": graphs_of(_flag(row, "cuda-graph-impl") or "none", _flag(row, "cuda-graph-scope")),
    }


def _has_dropout(row: PublishedRow) -> bool:
    """The flag is not in the table. Megatron-LM's default is 0.1, and the tests leave it so for models of GPT-3's kind; those
    with rotary positions, and those under context parallelism, set it to 0."""
    return row.text("position") != "rope" and row.integer("cp") == 1


def _flag(row: PublishedRow, name: str) -> str:
    """The value of a flag among the row's notes, `name=value; …`; empty without it."""
    found = re.search(rf"(?:^|; ){re.escape(name)}=([^;]*)", row.text("notes"))
    return found[1].strip() if found else ""
