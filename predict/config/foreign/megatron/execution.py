"""Megatron-LM's arguments of how a plan is executed (megatron/training/arguments.py), both ways, setting by setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from predict.config.foreign.arguments import Arguments
from predict.config.foreign.statement import Statement
from predict.run.execution import IN_TURN
from predict.run.training_run import TrainingRun
from sampling.operators.experts import PER_EXPERT

LOCAL_LAYERS = "megatron-local"
"""The framework that `--transformer-impl local` stands for."""
FLASH = "flash"
FLASH_OF: Mapping[str, str] = {"hopper": "fa3"}
"""Architecture → the kernel that Transformer Engine takes for `--attention-backend flash` where it is installed."""
OLDER_FLASH = "fa2"
BACKENDS: Mapping[str, str] = {"best": "auto", "fa2": FLASH, "fa3": FLASH, "cudnn": "fused", "unfused": "unfused"}
GRAPHS: Mapping[str, Mapping[str, str]] = {
    "layers": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn"},
    "full": {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"},
}
RECIPES = ("tensorwise", "delayed", "mxfp8", "blockwise")
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A key of `execution`, its arguments by value, and the value that arguments mean.

    `write` gives None for a value that no argument expresses.
    """

    key: str
    write: Callable[[Any, TrainingRun], Mapping[str, Any] | None]
    read: Callable[[Arguments], Any]
    """The value; None to leave it to the framework."""


def _switch(key: str, name: str, *, when: bool = True) -> Setting:
    """A setting that is `when` where the switch is given, and the opposite where it is not."""
    return Setting(
        key=key,
        write=lambda value, run: {name: True} if value is when else {},
        read=lambda given: given.switch(name) is when,
    )


def _unless(key: str, name: str, positive: str) -> Setting:
    """A setting that is on unless the switch `name` is given, which YAML files call by its opposite, `positive`."""
    return Setting(
        key=key,
        write=lambda value, run: {} if value else {name: True},
        read=lambda given: given.switch(positive, True) and not given.switch(name),
    )


def _dropout(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    share = 0.1 if value else 0.0
    return {"attention_dropout": share, "hidden_dropout": share}


def _gradients(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    if run.precision in ("fp32", "tf32"):
        return {} if value == "fp32" else None
    own = "fp16" if run.precision == "fp16" else "bf16"
    if value not in ("fp32", own):
        return None
    if own == "fp16":
        return {"accumulate_allreduce_grads_in_fp32": True} if value == "fp32" else {}
    return {"grad_reduce_in_bf16": True} if value == "bf16" else {}


def _read_gradients(given: Arguments) -> str:
    in_fp32, in_bf16 = given.switch("accumulate_allreduce_grads_in_fp32"), given.switch("grad_reduce_in_bf16")
    if given.switch("fp16"):
        return "fp32" if in_fp32 else "fp16"
    return "bf16" if in_bf16 else "fp32"


def _recipe(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    if run.precision != "fp8":
        return {} if not value else None
    return {"fp8_recipe": value or RECIPES[0]} if value in ("", *RECIPES) else None


def _read_recipe(given: Arguments) -> str:
    recipe = given.text("fp8_recipe", "delayed")
    if "fp8_format" not in given.values and "fp8" not in given.values:
        return ""
    return "" if recipe == RECIPES[0] else recipe


def _parameters(value: bool, run: TrainingRun) -> Mapping[str, Any] | None:
    """The switch, which Megatron-LM refuses without the distributed optimizer, and unless gradients overlap too."""
    if not value or not run.plan.zero:
        return {}
    return {"overlap_param_gather": True} if run.execution.overlap_gradients else None


def _read_parameters(given: Arguments) -> bool | None:
    overlaps = given.switch("overlap_param_gather")
    return overlaps if given.switch("use_distributed_optimizer") else None


def _overlap_tp(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    """The switch of a value; Megatron-LM refuses to pipeline without sequence parallelism, which needs tensor parallelism."""
    if run.plan.tp == 1:
        return {}
    if value == "pipelined" and not run.plan.sp:
        return None
    return {"pipelined": {"tp_comm_overlap": True}, "none": {"no_async_tensor_model_parallel_allreduce": True}}.get(
        value, {}
    )


def _read_overlap_tp(given: Arguments) -> str | None:
    behind = not given.switch("no_async_tensor_model_parallel_allreduce")
    read = "pipelined" if given.switch("tp_comm_overlap") else "backward" if behind else "none"
    return read if (given.count("tensor_model_parallel_size") or 1) > 1 else None


def _overlap_ep(value: str, run: TrainingRun) -> Mapping[str, Any]:
    names = {"shared_expert": "moe_shared_expert_overlap", "microbatch": "overlap_moe_expert_parallel_comm"}
    return {names[value]: True} if value in names else {}


def _read_overlap_ep(given: Arguments) -> str:
    behind_shared = given.switch("moe_shared_expert_overlap")
    if given.switch("overlap_moe_expert_parallel_comm"):
        return "microbatch"
    return "shared_expert" if behind_shared else "none"


def _dispatch(value: str, run: TrainingRun) -> Mapping[str, Any]:
    if run.model.experts is None:
        return {}
    if value in ("deepep", "hybridep"):
        kernels = {"moe_enable_deepep": True} if value == "deepep" else {"moe_flex_dispatcher_backend": value}
        return {"moe_token_dispatcher_type": "flex", **kernels}
    return {"moe_token_dispatcher_type": value}


def _read_dispatch(given: Arguments) -> str | None:
    kind = given.text("moe_token_dispatcher_type", "allgather")
    backend = given.text("moe_flex_dispatcher_backend", "deepep")
    given.passed_over("moe_enable_deepep")
    if not given.count("num_experts"):
        return None
    return backend if kind == "flex" else kind


def _attention(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    return {"attention_backend": BACKENDS[value]} if value in BACKENDS else None


def _read_attention(given: Arguments) -> str:
    backend = given.text("attention_backend", "auto")
    return {FLASH: FLASH, **{theirs: own for own, theirs in BACKENDS.items() if theirs != FLASH}}.get(backend, backend)


def _graphs(value: str, run: TrainingRun) -> Mapping[str, Any]:
    return GRAPHS.get(value, {})


def _read_graphs(given: Arguments) -> str:
    scope, impl = given.text("cuda_graph_scope", "full"), given.text("cuda_graph_impl", "none")
    older = [given.switch(name) for name in ("external_cuda_graph", "enable_cuda_graph")]
    if impl == "none" and not any(older):
        return "none"
    return "full" if scope == "full_iteration" else "layers"


def _of_mixtures(key: str, name: str) -> Setting:
    """A switch that means something for mixtures of experts alone."""
    return Setting(
        key=key,
        write=lambda value, run: {name: True} if value and run.model.experts is not None else {},
        read=lambda given: given.switch(name) if given.count("num_experts") else None,
    )


def _expert_products(value: str, run: TrainingRun) -> Mapping[str, Any]:
    """Transformer Engine's GroupedLinear unless the older library's one kernel, or no grouping, is asked for."""
    if run.model.experts is None or value == IN_TURN:
        return {}
    return {"moe_grouped_gemm": True, **({} if value == PER_EXPERT else {"moe_use_legacy_grouped_gemm": True})}


def _read_expert_products(given: Arguments) -> str | None:
    is_grouped, is_older = given.switch("moe_grouped_gemm"), given.switch("moe_use_legacy_grouped_gemm")
    if not given.count("num_experts"):
        return None
    return ("grouped" if is_older else PER_EXPERT) if is_grouped else IN_TURN


def _fuse_loss(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    return {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"} if value else {}


def _read_fuse_loss(given: Arguments) -> bool:
    is_own = given.text("cross_entropy_fusion_impl", "native") == "native"
    return given.switch("cross_entropy_loss_fusion") and is_own


def _scaling(value: bool, run: TrainingRun) -> Mapping[str, Any] | None:
    return {} if value == (run.precision == "fp16") else None


def _clip(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    return {} if value else {"clip_grad": 0.0}


SETTINGS: tuple[Setting, ...] = (
    _switch("overlap_gradients", "overlap_grad_reduce"),
    Setting(key="overlap_parameters", write=_parameters, read=_read_parameters),
    _unless("overlap_p2p", "no_overlap_p2p_communication", "overlap_p2p_comm"),
    _unless("split_p2p", "no_scatter_gather_tensors_in_pipeline", "scatter_gather_tensors_in_pipeline"),
    _unless("fuse_gradients", "no_gradient_accumulation_fusion", "gradient_accumulation_fusion"),
    _unless("fuse_softmax", "no_masked_softmax_fusion", "masked_softmax_fusion"),
    Setting(key="expert_products", write=_expert_products, read=_read_expert_products),
    _of_mixtures("fuse_permute", "moe_permute_fusion"),
    Setting(key="fuse_loss", write=_fuse_loss, read=_read_fuse_loss),
    Setting(key="cuda_graphs", write=_graphs, read=_read_graphs),
    Setting(key="overlap_tp", write=_overlap_tp, read=_read_overlap_tp),
    Setting(key="overlap_ep", write=_overlap_ep, read=_read_overlap_ep),
    Setting(key="dispatch", write=_dispatch, read=_read_dispatch),
    Setting(key="attention", write=_attention, read=_read_attention),
    Setting(key="gradient_dtype", write=_gradients, read=_read_gradients),
    Setting(key="fp8_recipe", write=_recipe, read=_read_recipe),
    Setting(key="loss_scaling", write=_scaling, read=lambda given: given.switch("fp16")),
    Setting(key="clip_gradients", write=_clip, read=lambda given: given.number("clip_grad", 1.0) > 0),
    Setting(
        key="dropout",
        write=_dropout,
        read=lambda given: max(given.number("attention_dropout", 0.1), given.number("hidden_dropout", 0.1)) > 0,
    ),
    Setting(
        key="optimizer",
        write=lambda value, run: {"optimizer": "adam" if value == "adamw" else value},
        read=lambda given: "muon" if "muon" in given.text("optimizer", "adam") else "adamw",
    ),
)


def write_execution(run: TrainingRun, statement: Statement) -> None:
    """Add the arguments of a run's execution and precision, with a reason for each value that none expresses."""
    for setting in SETTINGS:
        value = getattr(run.execution, setting.key)
        written = setting.write(value, run)
        if written is None:
            statement.cannot(f"execution.{setting.key}", value, f"{statement.tool} has no argument for this value")
        else:
            statement.say(f"execution.{setting.key}", **written)
    if run.execution.attention in ("fa2", "fa3"):
        why = f"written as --attention-backend flash; Transformer Engine takes the {run.execution.attention} that is installed"
        statement.cannot("execution.attention", run.execution.attention, why)
    if run.precision == "tf32":
        statement.cannot("precision", run.precision, "written as fp32; allow tf32 in torch")
    statement.say(**PRECISIONS.get(run.precision, {}))


def read_execution(given: Arguments) -> dict[str, Any]:
    """The keys of `execution` that the arguments settle, or Megatron-LM's defaults in their absence."""
    read = {setting.key: setting.read(given) for setting in SETTINGS}
    return {key: value for key, value in read.items() if value is not None}


def read_precision(given: Arguments) -> str:
    wide = "fp16" if given.switch("fp16") else "bf16" if given.switch("bf16") else "fp32"
    is_fp8 = given.text("fp8_format", given.text("fp8", "")) in ("e4m3", "hybrid")
    return "fp8" if is_fp8 else wide
