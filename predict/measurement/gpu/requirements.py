"""Which runs can be measured on one GPU, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterator

from predict.model.spec import LayerKind, ModelSpec
from predict.run.frameworks import framework_settings
from predict.run.training_run import TrainingRun

EAGER, COMPILED = "torch-eager", "torch-compiled"
PRECISIONS = ("bf16", "fp32")
ATTENTION = ("fa2", "cudnn")
RECOMPUTE = ("none", "full")
WORK = (
    "dropout",
    "elementwise",
    "expert_load",
    "fp8_recipe",
    "fuse_rms_norm",
    "fuse_gradients",
    "gradient_dtype",
    "optimizer",
    "master_weights",
    "clip_gradients",
    "loss_scaling",
)
"""Keys of `execution` that change what a single GPU computes, attention aside; the others change its price or its company."""
LAYERS = (LayerKind(), LayerKind(sparse=True))


def gpu_faults(run: TrainingRun) -> Iterator[str]:
    """Everything that keeps a run from being measured as a real step of one GPU, each with its fix."""
    yield from _spread_faults(run)
    yield from _work_faults(run)
    yield from _model_faults(run.model)
    batch = run.batch
    if not batch.global_ or batch.global_ % batch.micro:
        yield f"batch.global: {batch.global_} is not a multiple of batch.micro = {batch.micro}"
    if not run.model.rope and batch.seq_len > run.model.max_positions:
        yield f"batch.seq_len: {batch.seq_len} is beyond the model's {run.model.max_positions} learnt positions"


def _spread_faults(run: TrainingRun) -> Iterator[str]:
    if run.cluster.world_size != 1:
        yield f"cluster: {run.cluster.world_size} GPUs; a real step is of one GPU, use nodes: 1 and gpus_per_node: 1"
    for name in ("tp", "pp", "vpp", "cp", "dp", "ep", "etp"):
        if getattr(run.plan, name) != 1:
            yield f"plan.{name}: {getattr(run.plan, name)}; a real step is of one GPU, use 1"
    if run.plan.zero:
        yield f"plan.zero: {run.plan.zero}; one GPU has nobody to share with, use 0"


def _work_faults(run: TrainingRun) -> Iterator[str]:
    execution = run.execution
    if run.precision not in PRECISIONS:
        yield f"precision: {run.precision}; use one of {', '.join(PRECISIONS)}"
    if run.plan.recompute not in RECOMPUTE:
        yield f"plan.recompute: {run.plan.recompute!r}; use one of {', '.join(RECOMPUTE)}"
    if run.plan.recompute == "full" and run.plan.recompute_method != "uniform":
        yield f"plan.recompute_method: {run.plan.recompute_method!r}; all layers are recomputed, use uniform"
    if execution.framework not in (EAGER, COMPILED):
        yield (
            f"execution.framework: {execution.framework}; a real step on a GPU is of this project's own modules, use {EAGER} or "
            f"{COMPILED}"
        )
        return
    if execution.attention not in ATTENTION:
        yield f"execution.attention: {execution.attention}; torch's kernel is pinned, use one of {', '.join(ATTENTION)}"
    settings = framework_settings(execution.framework, run.cluster.gpu.architecture)
    plain = type(execution)()
    for name in WORK:
        usual = settings.get(name, getattr(plain, name))
        if getattr(execution, name) != usual:
            yield f"execution.{name}: {getattr(execution, name)!r}; {execution.framework} runs {usual!r}, remove it"


def _model_faults(model: ModelSpec) -> Iterator[str]:
    if others := sorted({kind.name for kind in model.kinds() if kind not in LAYERS}):
        yield f"model: layers of kind {', '.join(others)}; full attention, dense or with experts, can be measured"
    special = {
        model.attention.TITLE: not model.attention.IS_PLAIN,
        "gated queries": model.query_gate,
        "attention sinks": model.sinks,
        "capped scores": model.attention_cap,
        "capped logits": model.logit_cap,
        "norms of outputs": model.norms_a_layer != 2,
        "partly rotated heads": model.rotary_dim not in (0, model.head_dim),
        "parallel residuals": model.parallel_residual,
        "multi-token prediction": model.mtp_layers,
    }
    if found := [name for name, there in special.items() if there]:
        yield f"model: {', '.join(found)}; plain pre-norm layers can be measured"
    experts = model.experts
    if experts and (experts.shared_ffn or experts.bias or experts.router_bias or not experts.gated):
        yield "model: shared, biased or ungated experts; gated experts without biases can be measured"
