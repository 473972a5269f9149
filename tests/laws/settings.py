"""A setting of a run and what turning it does, and the figures that are looked at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from predict.step.prediction import Prediction

DENSE, MOE, MLA, VISION = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "qwen3-vl-2b"
Metric = Callable[[Prediction], float]


def step(predicted: Prediction) -> float:
    return predicted.step_time.median_us


def bubble(predicted: Prediction) -> float:
    return predicted.bubble_fraction


def first_stage(predicted: Prediction) -> float:
    return predicted.stages[0].forward_us


def last_stage(predicted: Prediction) -> float:
    return predicted.stages[-1].forward_us


def optimizer(predicted: Prediction) -> float:
    return predicted.breakdown_us["optimizer"]


def all_work(predicted: Prediction) -> float:
    return predicted.breakdown_us["gemm"]


def allocated(predicted: Prediction) -> float:
    return predicted.memory.worst.allocated


def reserved(predicted: Prediction) -> float:
    return predicted.memory.worst.reserved


def exposed(heading: str) -> Metric:
    return lambda predicted: predicted.breakdown_us.get(heading, 0.0)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """`before` and `after` are settings over `base`; between them `metric` grows, or falls."""

    key: str
    before: Any
    after: Any
    grows: bool
    metric: Metric = step
    base: Mapping[str, Any]
    model: str = DENSE
    least: float = 1e-4
    """Relative change."""


def plan(
    key: str, before: Any, after: Any, grows: bool, metric: Metric = step, model: str = DENSE, **base: Any
) -> Knob:
    return Knob(key=f"plan__{key}", before=before, after=after, grows=grows, metric=metric, base=base, model=model)


def execution(
    key: str, before: Any, after: Any, grows: bool, metric: Metric = step, model: str = DENSE, **base: Any
) -> Knob:
    return Knob(key=f"execution__{key}", before=before, after=after, grows=grows, metric=metric, base=base, model=model)


# How a run is spread over its ranks, turned.

PLAN_KNOBS = [
    plan("tp", 2, 8, False),
    plan("tp", 2, 8, True, exposed("tp")),
    plan("sp", False, True, False, exposed("rms_norm"), plan__tp=8),
    plan("sp", False, True, False, exposed("residual_add"), plan__tp=8),
    # what it gathers in backward is not hidden, the all-reduce without it is
    plan("sp", False, True, True, exposed("tp"), plan__tp=8),
    plan("pp", 1, 4, False),
    plan("pp", 2, 4, True, bubble),
    plan("vpp", 1, 2, False, bubble, plan__pp=4, plan__schedule="looped-bfs"),
    plan("dp", 2, 8, False),
    plan("dp", 1, 8, True, exposed("dp_exposed")),
    plan("cp", 1, 4, False),
    plan("cp", 1, 4, True, exposed("cp")),
    plan("cp_method", "ring", "all_gather", True, exposed("cp"), plan__cp=4),
    plan("cp_method", "all_gather", "all_to_all", True, exposed("cp"), plan__cp=4),
    plan("ep", 1, 8, True, exposed("ep"), MOE, plan__dp=8),
    plan("ep", 1, 8, False, optimizer, MOE, plan__dp=8),
    plan("etp", 1, 4, True, exposed("ep"), MOE, plan__dp=8),
    plan("zero", 0, 1, False, optimizer, plan__dp=8),
    # every microbatch's gradients are reduced
    plan("zero", 1, 2, True, step, plan__dp=8),
    plan("zero", 2, 3, True, exposed("fsdp"), plan__dp=8),
    # copies of a shard are kept on more ranks, and so is their optimizer's state
    plan("shard", 16, 8, True, optimizer, plan__dp=16, plan__zero=1),
    # smaller gatherings inside a node, beside an all-reduce between nodes
    plan("shard", 0, 8, True, exposed("fsdp"), plan__dp=16, plan__zero=3),
    plan("schedule", "1f1b", "zb-h1", False, bubble, plan__pp=4),
    plan("recompute", "none", "selective", True, exposed("attention")),
    plan("recompute", "none", "full", True),
    plan("recompute", "none", "ops", True),
    plan("recompute", "ops", "full", False, allocated),
    plan("recompute_modules", "core_attn", "core_attn, mlp", True, step, plan__recompute="selective"),
    plan("recompute_modules", "layernorm", "core_attn", True, step, plan__recompute="selective"),
    plan("recompute_method", "uniform", "block", False, step, plan__recompute="full"),
    plan("recompute_layers", 1, 4, True, step, plan__recompute="full", plan__recompute_method="block"),
    plan("layout", "4,4", "2,6", False, first_stage, plan__pp=2),
    plan("layout", "4,4", "2,6", True, step, plan__pp=2),
    plan("layout", "4,4", "Et*5|t*3L", False, last_stage, plan__pp=2),
    plan("first_stage_layers", 0, 2, False, first_stage, plan__pp=2),
    plan("last_stage_layers", 0, 2, False, last_stage, plan__pp=2),
    plan("count_embedding", 0, 2, False, first_stage, plan__pp=2),
    plan("count_loss", 0, 2, False, last_stage, plan__pp=2),
]


# How a framework runs the plan, turned.

LORA = {"adapters__kind": "lora"}
ADAPTER_KNOBS = [
    Knob(key="adapters__kind", before="none", after="lora", grows=False, base={"batch__global": 32}, model=DENSE),
    Knob(key="adapters__kind", before="lora", after="dora", grows=True, base={}, model=DENSE),
    Knob(key="adapters__rank", before=16, after=256, grows=True, base=LORA, model=DENSE),
    Knob(key="adapters__targets", before="all", after="attention", grows=False, base=LORA, model=DENSE),
    Knob(key="adapters__base", before="", after="nf4", grows=True, base=LORA, model=DENSE),
    Knob(
        key="adapters__double_quantised",
        before=True,
        after=False,
        grows=True,
        base={**LORA, "adapters__base": "nf4"},
        model=DENSE,
    ),
    Knob(key="adapters__at_once", before=1, after=4, grows=True, base={**LORA, "batch__micro": 4}, model=DENSE),
    Knob(key="adapters__joint", before=False, after=True, grows=False, base=LORA, model=DENSE),
]

AWAY = {"offload__optimizer_share": 1.0}
SHARDS = {"plan__dp": 8, "plan__zero": 3, "execution__framework": "fsdp"}
TASKED = {"tuning__task": "dpo"}
IMAGE = {"vision__images": 1, "vision__image_tokens": 256}


def beside(
    key: str, before: Any, after: Any, grows: bool, base: Mapping[str, Any], metric: Metric = step, model: str = DENSE
) -> Knob:
    return Knob(key=key, before=before, after=after, grows=grows, base=base, model=model, metric=metric)


BESIDE_KNOBS = [
    beside("offload__optimizer_share", 0.0, 1.0, True, {}),
    beside("offload__optimizer_share", 0.0, 1.0, False, {}, allocated),
    beside("offload__optimizer_on", "host", "disk", True, AWAY),
    beside("offload__overlap_optimizer", False, True, False, AWAY),
    beside("offload__gradients_on_host", False, True, False, {**AWAY, **SHARDS}, allocated),
    beside("offload__shards_on", "gpu", "host", True, SHARDS),
    beside("offload__activation_share", 0.0, 1.0, False, {}, allocated),
    beside("offload__overlap_activations", False, True, False, {"offload__activation_share": 1.0}),
    beside("tuning__task", "sft", "dpo", True, {}),
    beside("tuning__task", "sft", "reward", False, {}),
    beside("tuning__task", "sft", "policy", True, {}),
    beside("tuning__reference", "kept", "precomputed", False, TASKED),
    beside("tuning__evaluated_share", 0.0, 0.5, True, {}),
    beside("vision__images", 1, 4, True, IMAGE, model=VISION),
    beside("vision__image_tokens", 64, 256, True, IMAGE, model=VISION),
    beside("vision__trained", "all", "none", False, IMAGE, model=VISION),
]

EXECUTION_KNOBS = [
    execution("framework", "megatron-core", "megatron-2021", True),
    execution("framework", "megatron-core", "fsdp", True, exposed("swiglu")),
    execution("framework", "fsdp", "fsdp-compile", False),
    execution("attention", "best", "unfused", True),
    execution("attention", "fa3", "fa2", True, exposed("attention")),
    execution("elementwise", "fused", "eager", True, exposed("swiglu")),
    execution("elementwise", "fused", "eager", True, exposed("rope")),
    execution("attention", "fa2", "fa1", True, exposed("attention")),
    execution("fuse_rms_norm", True, False, True, exposed("rms_norm")),
    execution("fuse_softmax", True, False, True, exposed("softmax"), execution__attention="unfused"),
    execution("fuse_gate", True, False, True, exposed("tp"), plan__tp=8),
    execution("clocks", "burst", "sustained", True, all_work),
    execution("launch_floor_us", 0, 5000, True, exposed("host"), plan__tp=8),
    execution("launch_floor_us", 0, 5000, True, step, plan__tp=8),
    execution("synchronous_launches", False, True, True, exposed("host"), plan__tp=8, execution__launch_floor_us=500),
    execution("dropout", False, True, True, exposed("dropout")),
    execution("gemm_efficiency", 0.5, 0.8, False, all_work),
    execution("product_time", 1.0, 1.2, True, all_work),
    execution("memory_time", 1.0, 1.2, True, exposed("rms_norm")),
    execution("in_node_time", 1.0, 1.2, True, exposed("tp"), plan__tp=8),
    execution(
        "between_nodes_time", 1.0, 1.2, True, exposed("dp_exposed"), plan__dp=16, execution__overlap_gradients=False
    ),
    execution("waiting_time", 1.0, 1.2, True, exposed("stragglers"), plan__dp=8, execution__stragglers=True),
    execution("exposed_time", 1.0, 1.2, True, exposed("dp_exposed"), plan__dp=8),
    execution("fp8_recipe", "", "rowwise", True, all_work, precision="fp8"),
    execution("fp8_recipe", "mxfp8", "blockwise", True, all_work, precision="fp8"),
    execution("gradient_dtype", "fp32", "bf16", False, exposed("gradient_accumulation")),
    execution("gradient_dtype", "fp32", "bf16", False, exposed("dp_exposed"), plan__dp=8),
    execution("fuse_gradients", True, False, True, exposed("gradient_accumulation")),
    execution("reduction_dtype", "bf16", "fp32", True, exposed("dp_exposed"), plan__dp=8),
    execution("optimizer", "adamw", "muon", True, exposed("optimizer")),
    execution("master_weights", True, False, False, optimizer),
    execution("clip_gradients", True, False, False, exposed("optimizer")),
    execution("fp8_weights", "copies", "primary", False, allocated, precision="fp8"),
    execution("master_dtype", "fp32", "remainder", False, allocated),
    execution("moment_dtype", "fp32", "bf16", False, allocated),
    execution("allocator", "segments", "expandable", False, reserved),
    execution("loss_scaling", False, True, True, exposed("optimizer"), precision="fp16"),
    execution("step_overhead_us", 0, 50_000, True),
    execution("optimizer_launch_us", 0, 50_000, True),
    execution("fp8_attention", False, True, False, exposed("attention")),
    execution("fp8_attention", False, True, False, allocated),
    execution("wide_first_layers", 0, 4, True, exposed("gemm"), precision="fp8"),
    execution("wide_last_layers", 0, 4, True, exposed("gemm"), precision="fp8"),
    execution("overlap_gradients", True, False, True, exposed("dp_exposed"), plan__dp=8),
    execution("sharded_reduction", "reduce_scatter", "all_reduce", True, step, plan__dp=8, plan__zero=1),
    execution("overlap_parameters", True, False, True, exposed("dp_exposed"), plan__dp=8, plan__zero=1),
    execution("sharding_contention", 0.1, 0.6, True, exposed("fsdp"), plan__dp=8, plan__zero=3),
    execution("copy_gathered", False, True, True, exposed("fsdp"), plan__dp=8, plan__zero=3),
    execution("overlap_tp", "none", "backward", False, exposed("tp"), plan__tp=8),
    execution("overlap_tp", "backward", "pipelined", False, exposed("tp"), plan__tp=8, plan__sp=True),
    execution("gather_again", True, False, False, exposed("tp"), plan__tp=8, plan__sp=True),
    execution("split_loss", True, False, True, exposed("cross_entropy"), plan__tp=8),
    execution("recompute_ends", False, True, True, step, plan__recompute="full"),
    execution("overlap_ep", "none", "microbatch", False, exposed("ep"), MOE, plan__dp=8, plan__ep=8),
    execution("overlap_ep", "none", "shared_expert", False, exposed("ep"), MLA, plan__dp=8, plan__ep=8),
    execution("dispatch", "alltoall", "deepep", False, exposed("ep"), MOE, plan__dp=16, plan__ep=16),
    execution("dispatch", "alltoall", "hybridep", False, exposed("ep"), MOE, plan__dp=8, plan__ep=8),
    execution("dispatch", "deepep", "allgather", True, exposed("ep"), MOE, plan__dp=16, plan__ep=16),
    execution("expert_launch_us", 0, 5000, True, exposed("host"), MOE, plan__dp=16, plan__ep=16),
    execution("cuda_graphs", "none", "layers", False, exposed("host"), MOE, plan__dp=16, plan__ep=16),
    execution(
        "cuda_graphs", "layers", "full", False, exposed("grouped_gemm"), MOE, plan__dp=8, plan__ep=8, precision="fp8"
    ),
    execution(
        "expert_products", "grouped", "per_expert", False, exposed("grouped_gemm"), MOE, plan__dp=16, plan__ep=16
    ),
    execution("router_product", "fp32", "tf32", False, exposed("router"), MOE),
    execution("fuse_permute", False, True, False, exposed("unpermute"), MOE),
    execution("stack", "2025-09", "2026-06", False, all_work, cluster__hardware="b200"),
    execution("expert_products", "per_expert", "in_turn", True, exposed("gemm"), MOE, plan__dp=16, plan__ep=16),
    execution("fuse_loss", False, True, True, allocated),
    execution("fuse_loss", False, True, False, allocated, execution__framework="torchtitan"),
    execution("blas_workspace_mib", 0, 64, True, allocated),
    execution("overlap_p2p", True, False, True, step, plan__pp=4),
    execution("split_p2p", True, False, True, exposed("p2p"), plan__pp=4, plan__tp=4),
    execution("expert_load", "balanced", "natural", True, exposed("grouped_gemm"), MOE, plan__dp=8, plan__ep=8),
    execution("expert_load", "balanced", "power_law_1.2", True, exposed("grouped_gemm"), MOE, plan__dp=8, plan__ep=8),
    execution("stragglers", False, True, True, exposed("stragglers"), plan__dp=8),
]


# The batch, the cluster and the precision, turned.

BATCH_KNOBS = [
    Knob(key="batch__global", before=16, after=32, grows=True, base={}),
    # larger products, and fewer microbatches that add to the gradients
    Knob(key="batch__micro", before=1, after=4, grows=False, base={}),
    Knob(key="batch__micro", before=1, after=4, grows=True, metric=bubble, base={"plan__pp": 4}),
    Knob(key="batch__seq_len", before=4096, after=8192, grows=True, metric=exposed("attention"), base={}),
    Knob(
        key="batch__lengths",
        before="constant:512",
        after="constant:2048",
        grows=True,
        base={"batch__padding": "sorted"},
    ),
    Knob(key="batch__padding", before="max", after="sorted", grows=False, base={"batch__lengths": "uniform:256..4096"}),
]
_TWO_NODES: dict[str, Any] = {"plan__dp": 16, "execution__overlap_gradients": False}
CLUSTER_KNOBS = [
    Knob(key="cluster__hardware", before="h100-sxm", after="a100-80gb", grows=True, base={}),
    Knob(
        key="cluster__intra_node_gb_per_s", before=450, after=45, grows=True, metric=exposed("tp"), base={"plan__tp": 8}
    ),
    Knob(
        key="cluster__intra_node_latency_us",
        before=5,
        after=500,
        grows=True,
        metric=exposed("tp"),
        base={"plan__tp": 8},
    ),
    Knob(
        key="cluster__node_size",
        before=4,
        after=8,
        grows=False,
        metric=exposed("tp"),
        base={"cluster__hardware": "a100-80gb", "plan__tp": 2, "plan__dp": 2},
    ),
    Knob(
        key="cluster__inter_node_gb_per_s",
        before=50,
        after=5,
        grows=True,
        metric=exposed("dp_exposed"),
        base=_TWO_NODES,
    ),
    Knob(
        key="cluster__inter_node_latency_us",
        before=10,
        after=90_000,
        grows=True,
        metric=exposed("dp_exposed"),
        base=_TWO_NODES,
    ),
]
PRECISION_KNOBS = [
    Knob(key="precision", before="bf16", after="fp8", grows=False, metric=all_work, base={}),
    Knob(key="precision", before="bf16", after="tf32", grows=True, metric=all_work, base={}),
    Knob(key="precision", before="tf32", after="fp32", grows=True, metric=all_work, base={}),
]
