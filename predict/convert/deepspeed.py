"""DeepSpeed's JSON with the arguments of Megatron-DeepSpeed, both ways.

Names: deepspeed.ai/docs/config-json, and megatron/arguments.py of deepspeedai/Megatron-DeepSpeed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from predict.config.aliases import alias_of
from predict.convert.arguments import Arguments, Setting, Statement, read_settings, setting, size, write_settings
from predict.convert.tool import tool_file
from predict.rank.share import WIDER, held_dtype
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.training_run import TrainingRun
from sampling.files.faults import shown

CONFIG_FILE = "ds_config.json"
FRAMEWORK = "megatron-deepspeed"
RENAMED: Mapping[str, str] = tool_file("megatron_deepspeed")["renamed"]
"""Megatron-LM's argument → Megatron-DeepSpeed's."""
SAME = tool_file("megatron_deepspeed")["same"]
"""Arguments that both have under one name."""
SILENT = tool_file("megatron_deepspeed")["silent"]
"""Arguments of Megatron-LM that follow from others here, or that the JSON says in their place."""
FROM_ARGUMENTS = ("fuse_softmax", "fuse_gradients", "overlap_tp", "dropout", "optimizer")
RECOMPUTING = ("checkpoint_activations", "deepspeed_activation_checkpointing")
"""Older switches of full recomputation."""
FIXED = ("overlap_p2p", "split_p2p", "overlap_parameters", "dispatch")
"""Keys of `execution` that nothing there sets."""
FLASH = ("use_flash_attn", "use_flash_attn_v2")
"""Keys of `execution` that the arguments settle; the JSON settles others."""


def arguments(run: TrainingRun, statement: Statement) -> dict[str, Any]:
    """Megatron-DeepSpeed's arguments for those of Megatron-LM in `statement`, with a reason for each that it lacks."""
    written: dict[str, Any] = {}
    for name, value in statement.arguments.items():
        if name in RENAMED:
            written[RENAMED[name]] = value
        elif name in SAME.split():
            written[name] = value.lower() if name == "normalization" else value
        elif name not in SILENT.split() and not (name == "moe_layer_freq" and _expert_interval(run)):
            alias = alias_of(name)
            path = f"{alias.section}.{alias.key}" if alias else f"--{name.replace('_', '-')}"
            statement.cannot(path, value, f"{statement.tool} has no such argument")
    if interval := _expert_interval(run):
        written["expert_interval"] = interval
    if run.model.rope:
        written["use_rotary_position_embeddings"] = True
    if run.plan.pp == 1:
        written["no_pipeline_parallel"] = True
    if run.execution.attention != "unfused":
        written["use_flash_attn_v2"] = True
    if run.plan.etp > 1 and run.plan.etp == run.plan.tp:
        written["enable_expert_tensor_parallelism"] = True
    _refuse(run, statement)
    return written | {"zero_stage": run.plan.zero, "deepspeed": True, "deepspeed_config": CONFIG_FILE}


def _expert_interval(run: TrainingRun) -> int | None:
    """The interval at which layers are mixtures; None where they are at no such interval, or the model has none."""
    sparse = [kind.sparse for kind in run.model.kinds()]
    if run.model.experts is None or not any(sparse):
        return None
    interval = sparse.index(True) + 1
    return interval if sparse == _sparse_layers(len(sparse), interval) else None


def _sparse_layers(layers: int, interval: int) -> list[bool]:
    """Whether each layer is a mixture: the last of each `interval` layers is."""
    return [layer % interval == 0 for layer in range(1, layers + 1)]


def _refuse(run: TrainingRun, statement: Statement) -> None:
    plan, execution = run.plan, run.execution
    for key in ("attention", "gradient_dtype"):  # the reasons were of Megatron-LM's arguments
        statement.reasons.pop(f"execution.{key}", None)
    if run.precision != "fp16":  # that the framework scales losses is of fp16 alone
        statement.reasons.pop("execution.loss_scaling", None)
    refusals: Mapping[str, tuple[bool, Any, str]] = {
        "plan.zero": (plan.pp > 1 and plan.zero > 1, plan.zero, "DeepSpeed's pipeline engine runs ZeRO stages 0 and 1"),
        "plan.cp_method": (
            plan.cp > 1 and plan.cp_method != "all_to_all",
            plan.cp_method,
            "written as DeepSpeed-Ulysses, which is all_to_all",
        ),
        "plan.cp": (
            plan.pp > 1 and plan.cp > 1,
            plan.cp,
            "DeepSpeed-Ulysses cannot be combined with DeepSpeed's pipeline engine; it will not start with plan.pp above 1",
        ),
        "plan.pp": (
            plan.pp > 1 and run.model.experts is not None,
            plan.pp,
            "DeepSpeed's pipeline engine has no mixtures of experts; it will not run this model with plan.pp above 1",
        ),
        "plan.schedule": (plan.vpp > 1, plan.schedule, "DeepSpeed's pipeline engine runs 1F1B"),
        "plan.shard": (bool(plan.shard) and plan.zero != 3, plan.shard, "MiCS needs ZeRO stage 3"),
        "precision": (run.precision in WIDER, run.precision, "DeepSpeed's config has bf16, fp16 and fp32"),
        "plan.etp": (plan.etp not in (1, plan.tp), plan.etp, "experts are split as attention is, or not at all"),
        "execution.attention": (
            execution.attention not in ("fa2", "unfused"),
            execution.attention,
            "written as FlashAttention-2",
        ),
    }
    for path, (applies, value, why) in refusals.items():
        if applies:
            statement.cannot(path, value, why)
    usual = {**asdict(Execution()), **framework_settings(FRAMEWORK, run.cluster.gpu.architecture)}
    for key in FIXED:
        value = getattr(execution, key)
        if value != usual[key]:
            statement.cannot(f"execution.{key}", value, f"{statement.tool} runs it as {shown(usual[key])}")
    statement.say("execution.sharded_reduction")
    if execution.attention not in ("best", "fa2", "unfused"):
        statement.cannot(
            "execution.attention", execution.attention, "Megatron-DeepSpeed runs FlashAttention-2, or none"
        )


def _if_given(name: str, read: Callable[[Arguments], Any]) -> Callable[[Arguments], Any]:
    """The reader of a setting that is the framework's where the JSON does not have it."""
    return lambda given: read(given) if name in given.values else None


def _read_replicas(given: Arguments) -> dict[str, Any]:
    """dp, where the three batch sizes are given."""
    together, micro = given.count(GLOBAL), given.count(MICRO)
    steps = given.count(STEPS) or (1 if together and micro is None else None)
    if together and micro and steps and together % (micro * steps) == 0:
        return {"plan.dp": together // (micro * steps)}
    return {}


def _write_dtypes(run: TrainingRun, statement: Statement) -> None:
    statement.say(**{ACCUMULATED: run.execution.gradient_dtype})
    wide = held_dtype(run)
    if wide in HALVES:
        statement.say(**{f"{wide}.enabled": True})


def _read_dtypes(given: Arguments) -> dict[str, Any]:
    is_on = {name: given.switch(f"{name}.enabled") for name in HALVES}
    dtype = next((name for name in HALVES if is_on[name]), "fp32")
    accumulated = given.text(ACCUMULATED, "fp32" if dtype == "bf16" else dtype)
    scaling = {"execution.loss_scaling": True} if dtype == "fp16" else {}
    return {"precision": dtype, "execution.gradient_dtype": accumulated, **scaling}


HALVES = ("bf16", "fp16")
GLOBAL, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
CLIPPING, ACCUMULATED = "gradient_clipping", "data_types.grad_accum_dtype"
STAGE, SHARD = "zero_optimization.stage", "zero_optimization.mics_shard_size"
OVERLAP, SCATTER = "zero_optimization.overlap_comm", "zero_optimization.reduce_scatter"
JSON: tuple[Setting, ...] = (
    size("batch.global", GLOBAL),
    size("batch.micro", MICRO),
    Setting(write=lambda run, statement: statement.say(**{STEPS: run.microbatches}), read=_read_replicas),
    setting(
        "execution.clip_gradients",
        write=lambda value, run: {CLIPPING: 1.0 if value else 0.0},
        read=_if_given(CLIPPING, lambda given: given.number(CLIPPING, 0.0) > 0),
    ),
    setting("plan.zero", write=lambda value, run: {STAGE: value}, read=lambda given: given.count(STAGE) or 0),
    setting(
        "execution.overlap_gradients",
        write=lambda value, run: {OVERLAP: value},
        read=_if_given(OVERLAP, lambda given: given.switch(OVERLAP)),
    ),
    setting(
        "execution.sharded_reduction",
        write=lambda value, run: {SCATTER: value == "reduce_scatter"},
        read=_if_given(SCATTER, lambda given: "reduce_scatter" if given.switch(SCATTER, True) else "all_reduce"),
    ),
    setting(
        "plan.shard",
        write=lambda value, run: {SHARD: value} if value and run.plan.zero == 3 else {},
        read=lambda given: given.count(SHARD) or None,
    ),
    Setting(write=_write_dtypes, read=_read_dtypes),
)
"""The settings of ds_config.json, whose arguments are paths in it."""


def config(run: TrainingRun) -> str:
    """The text of ds_config.json."""
    statement = Statement(tool="DeepSpeed")
    write_settings(JSON, run, statement)
    content: dict[str, Any] = {}
    for path, value in statement.arguments.items():
        section, _, key = path.rpartition(".")
        (content.setdefault(section, {}) if section else content)[key] = value
    return json.dumps(content, indent=2) + "\n"


def as_megatron(values: Mapping[str, Any]) -> dict[str, Any]:
    """Megatron-LM's arguments of those of Megatron-DeepSpeed."""
    names = {theirs: own for own, theirs in RENAMED.items()}
    found = {names.get(name, name): value for name, value in values.items()}
    if "num_query_groups" in found:
        found["group_query_attention"] = True
    if "context_parallel_size" in found:
        found.setdefault("cp_comm_type", "a2a")
    if str(found.get("normalization", "")).lower() == "rmsnorm":
        found["normalization"] = "RMSNorm"
    if "enable_expert_tensor_parallelism" not in found:
        found["expert_tensor_parallel_size"] = 1
    if any(name in found for name in RECOMPUTING):
        found.setdefault("recompute_granularity", "full")
    if str(found.get("num_experts")) == "1":  # a dense model
        del found["num_experts"]
    layers, interval = (str(found.get(name, usual)) for name, usual in (("num_layers", ""), ("expert_interval", 2)))
    if "num_experts" in found and layers.isdecimal() and interval.isdecimal() and int(interval):
        found.pop("expert_interval", None)
        found["moe_layer_freq"] = [int(sparse) for sparse in _sparse_layers(int(layers), int(interval))]
    return found


def flat(document: Mapping[Any, Any]) -> dict[str, Any]:
    """The JSON's values by path, `zero_optimization.stage`; those left to the trainer, "auto", are absent."""
    values: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            values |= {f"{key}.{name}": each for name, each in flat(value).items()}
        elif value != "auto":
            values[str(key)] = value
    return values


def read_sections(given: Arguments) -> dict[str, Any]:
    """The keys of a run config that the JSON gives; dp where its three batch sizes are."""
    found = read_settings(JSON, given)
    batch = {key: value for key, value in found.get("batch", {}).items() if value}
    return {
        "plan": found["plan"],
        "batch": batch,
        "precision": found["precision"][""],
        "execution": found.get("execution", {}),
    }
