"""torchtitan's TOML file (torchtitan/config/job_config.py), written from a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from predict.convert.arguments import Arguments, Statement, settings_of
from predict.convert.megatron_model import model_section
from predict.run.stages import split_layers
from predict.run.training_run import TrainingRun

MODELS: Mapping[str, tuple[str, str]] = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3.1-405b": ("llama3", "405B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}
"""Shipped model → torchtitan's name and flavor of it (torchtitan/models/*/__init__.py)."""
SCHEDULES: Mapping[str, str] = {
    "1f1b": "1F1B",
    "afab": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""Our schedules → those of torch.distributed.pipelining."""
ROTATIONS: Mapping[str, str] = {"all_gather": "allgather", "ring": "alltoall"}
"""cp_method → `context_parallel_rotate_method`, whose `alltoall` passes the shards on around the ring."""
RESHARDING: Mapping[int, str] = {2: "never", 3: "always"}
"""ZeRO stage → `fsdp_reshard_after_forward`."""
DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp8": "bfloat16", "fp32": "float32", "tf32": "float32"}
REDUCED: Mapping[str, str] = {"bf16": "bfloat16", "fp32": "float32"}
FLOAT8 = ("tensorwise", "rowwise")
COMPILED, EAGER = "torchtitan", "fsdp"
"""The frameworks that stand for torchtitan with torch.compile and without it."""


def framework_of(framework: str) -> str:
    """The one of the two frameworks that a run's own is taken for."""
    return EAGER if framework == EAGER else COMPILED


def write(run: TrainingRun, statement: Statement) -> None:
    """Add the settings of a run, as `section.key`."""
    _write_model(run, statement)
    _write_training(run, statement)
    _write_data_parallel(run, statement)
    _write_tensor_and_context(run, statement)
    _write_pipeline(run, statement)
    _write_recompute(run, statement)


def as_toml(run: TrainingRun, settings: Mapping[str, Any], notes: Sequence[str]) -> str:
    """The text of the file; `notes` come first, as comments."""
    nodes, per_node = run.cluster.nodes, run.cluster.gpus_per_node
    lines = [
        f"# {run.name} on {nodes} x {per_node} {run.cluster.gpu.name}; add your data and the optimizer's schedule",
        f"# torchrun --nnodes {nodes} --nproc-per-node {per_node} -m torchtitan.train --job.config_file THIS_FILE",
        *(f"# {line}" for note in notes for line in note.splitlines()),
    ]
    for section in dict.fromkeys(path.partition(".")[0] for path in settings):
        lines += ["", f"[{section}]"]
        own = {path.partition(".")[2]: value for path, value in settings.items() if path.startswith(f"{section}.")}
        lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
    return "\n".join(lines) + "\n"


def _put(statement: Statement, settings: Mapping[str, Any], *paths: str) -> None:
    statement.say(*paths)
    statement.arguments.update(settings)


def _write_model(run: TrainingRun, statement: Statement) -> None:
    # the shape is that of a flavor, or none of its fields is expressed: one reason tells it
    statement.said.update(f"model.{name}" for name in settings_of(run.model))
    section = model_section(run.model)
    known = MODELS.get(section) if isinstance(section, str) else None
    if known is None:
        statement.cannot(
            "model", run.model.name, "torchtitan has no flavor of these sizes; register one under this name"
        )
        known = (run.model.name, run.model.name)
    _put(statement, {"model.name": known[0], "model.flavor": known[1]})


def _write_training(run: TrainingRun, statement: Statement) -> None:
    plan, batch, execution = run.plan, run.batch, run.execution
    settings: dict[str, Any] = {
        "training.local_batch_size": batch.micro if plan.pp == 1 else batch.global_ // plan.dp,
        "training.global_batch_size": batch.global_,
        "training.seq_len": batch.seq_len,
    }
    _put(statement, settings, "execution.gradient_dtype", "execution.fp8_recipe")
    if run.precision in DTYPES:
        _put(statement, {"training.mixed_precision_param": DTYPES[run.precision]})
    else:
        statement.cannot("precision", run.precision, "torchtitan trains in bfloat16 or float32")
    if execution.gradient_dtype in REDUCED:
        _put(statement, {"training.mixed_precision_reduce": REDUCED[execution.gradient_dtype]})
    else:
        statement.cannot("execution.gradient_dtype", execution.gradient_dtype, "torchtitan reduces bfloat16 or float32")
    if run.precision == "tf32":
        statement.cannot("precision", "tf32", "written as float32; allow tf32 in torch")
    if run.precision == "fp8":
        _write_fp8(execution.fp8_recipe or FLOAT8[0], statement)
    _put(statement, {"compile.enable": framework_of(execution.framework) == COMPILED})
    _put(statement, {"optimizer.name": "AdamW"})


def _write_fp8(recipe: str, statement: Statement) -> None:
    if recipe == "mxfp8":
        _put(statement, {"model.converters": ["mx"], "mx.recipe_name": recipe})
        return
    if recipe not in FLOAT8:
        statement.cannot(
            "execution.fp8_recipe", recipe, f"written as {FLOAT8[0]}; torchtitan has rowwise and mxfp8 too"
        )
        recipe = FLOAT8[0]
    _put(statement, {"model.converters": ["float8"], "float8.recipe_name": recipe})


def _write_data_parallel(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    shard = plan.dp if not plan.shard else max(1, plan.shard // plan.cp)
    if plan.zero == 0:
        shard = 1
    settings: dict[str, Any] = {
        "parallelism.data_parallel_replicate_degree": plan.dp // shard,
        "parallelism.data_parallel_shard_degree": shard,
    }
    if plan.zero:
        settings["parallelism.fsdp_reshard_after_forward"] = RESHARDING[max(plan.zero, 2)]
    if plan.zero == 0 and plan.cp > 1:
        statement.cannot("plan.zero", 0, "FSDP shards over context-parallel ranks: read as stage 2 or 3")
    if plan.zero == 1:
        statement.cannot("plan.zero", 1, "FSDP shards the gradients as well: written as stage 2")
    _put(statement, settings, "plan.dp", "plan.zero", "plan.shard")


def _write_tensor_and_context(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    settings: dict[str, Any] = {
        "parallelism.tensor_parallel_degree": plan.tp,
        "parallelism.context_parallel_degree": plan.cp,
        "parallelism.expert_parallel_degree": plan.ep,
    }
    if run.model.experts is not None:
        settings["parallelism.expert_tensor_parallel_degree"] = plan.etp
    if plan.cp > 1 and plan.cp_method in ROTATIONS:
        settings["parallelism.context_parallel_rotate_method"] = ROTATIONS[plan.cp_method]
    elif plan.cp > 1:
        statement.cannot("plan.cp_method", plan.cp_method, "torchtitan passes keys and values on, or gathers them")
    if plan.tp > 1 and not plan.sp:
        statement.cannot("plan.sp", False, "torchtitan's tensor parallelism always splits the sequence too")
    _put(statement, settings, *(f"plan.{key}" for key in ("tp", "sp", "cp", "cp_method", "ep", "etp")))
    if run.execution.overlap_tp in ("none", "pipelined"):
        enabled = run.execution.overlap_tp == "pipelined"
        if enabled and framework_of(run.execution.framework) == EAGER:
            enabled = False
            why = "torchtitan's asynchronous tensor parallelism needs torch.compile, which this run is without"
            statement.cannot("execution.overlap_tp", run.execution.overlap_tp, why)
        _put(statement, {"parallelism.enable_async_tensor_parallel": enabled}, "execution.overlap_tp")


def _write_pipeline(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    _put(statement, {"parallelism.pipeline_parallel_degree": plan.pp}, "plan.pp", "plan.vpp", "plan.schedule")
    if plan.pp == 1:
        return
    _put(statement, {"parallelism.pipeline_parallel_microbatch_size": run.batch.micro})
    if plan.schedule.lower().endswith(".csv"):
        _put(statement, {"parallelism.pipeline_parallel_schedule_csv": plan.schedule})
    elif plan.schedule in SCHEDULES:
        _put(statement, {"parallelism.pipeline_parallel_schedule": SCHEDULES[plan.schedule]})
    else:
        statement.cannot(
            "plan.schedule", plan.schedule, "not in torch.distributed.pipelining; write its order with --order"
        )
    counted = plan.count_embedding + plan.count_loss
    stages = plan.pp * plan.vpp
    of_stage = -(-(run.model.layers + counted) // stages)
    if -(-(run.model.layers + counted) // of_stage) != stages:
        why = (
            f"{of_stage} layers a stage, as torchtitan counts them, make fewer stages; name each stage's modules there"
        )
        statement.cannot("plan.vpp", plan.vpp, why)
    settings = {
        "pipeline_parallel_layers_per_stage": of_stage,
        "pipeline_parallel_first_stage_less_layers": plan.count_embedding,
        "pipeline_parallel_last_stage_less_layers": plan.count_loss,
    }
    _put(statement, {f"parallelism.{key}": value for key, value in settings.items()})
    statement.say("plan.count_embedding", "plan.count_loss", "plan.layout")
    statement.say("plan.first_stage_layers", "plan.last_stage_layers")
    if plan.layout or plan.first_stage_layers or plan.last_stage_layers:
        shares = ",".join(map(str, split_layers(run.model.layers, stages, plan)))
        statement.cannot("plan.layout", shares, "written as an even split; name each stage's modules in torchtitan")


def _write_recompute(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    settings: dict[str, Any] = {"activation_checkpoint.mode": plan.recompute}
    keys = ("recompute", "recompute_modules", "recompute_method", "recompute_layers")
    if plan.recompute in ("selective", "ops"):
        settings |= {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    if plan.recompute == "selective":
        why = "written as torchtitan's choice of operators, which keeps half of the matrix products' results"
        statement.cannot("plan.recompute_modules", plan.recompute_modules, why)
    elif plan.recompute == "full" and plan.recompute_method == "block":
        chunk = max(split_layers(run.model.layers, plan.pp * plan.vpp, plan))
        every, rest = divmod(chunk, min(plan.recompute_layers, chunk))
        settings |= {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": str(every)}
        if rest:
            statement.cannot("plan.recompute_layers", plan.recompute_layers, f"written as one layer in {every}")
    _put(statement, settings, *(f"plan.{key}" for key in keys))


# torchtitan's TOML file (torchtitan/config/job_config.py), read as the sections of a run config.

DEGREES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "etp": "expert_tensor"}


def read_model_name(given: Arguments) -> str:
    """The shipped model of a name and flavor; the two themselves where there is none."""
    name, flavor = given.text("model.name", ""), given.text("model.flavor", "")
    found = next((own for own, theirs in MODELS.items() if theirs == (name, flavor)), "")
    return found or f"{name}-{flavor}".strip("-")


def read_sections(given: Arguments, *, layers: int) -> dict[str, Any]:
    """The plan, batch, precision and execution, each key that differs from its default."""
    plan: dict[str, Any] = {
        key: given.count(f"parallelism.{name}_parallel_degree") or 1 for key, name in DEGREES.items()
    }
    plan["sp"] = plan["tp"] > 1
    if plan["cp"] > 1:
        rotation = given.text("parallelism.context_parallel_rotate_method", "allgather")
        plan["cp_method"] = next((own for own, theirs in ROTATIONS.items() if theirs == rotation), rotation)
    plan |= _read_sharding(given, plan["cp"]) | _read_pipeline(given, plan["pp"], layers)
    plan |= _read_recompute(given, layers, plan["pp"] * plan.get("vpp", 1))
    return {
        "plan": plan,
        "batch": _read_batch(given, plan["pp"], plan.get("dp", 0)),
        "precision": _read_precision(given),
        "execution": _read_execution(given),
    }


def _read_sharding(given: Arguments, cp: int) -> dict[str, Any]:
    """dp, where both degrees are given, ZeRO's stage and the ranks that share a copy; the rest of the ranks shard by default."""
    replicas = given.count("parallelism.data_parallel_replicate_degree") or 1
    shard = given.whole("parallelism.data_parallel_shard_degree", -1)
    resharding = given.text("parallelism.fsdp_reshard_after_forward", "default")
    pp = given.count("parallelism.pipeline_parallel_degree") or 1
    keeps = resharding == "never" or (resharding == "default" and pp > 1)
    sharding: dict[str, Any] = {"zero": 2 if keeps else 3}
    if shard == 1 and cp == 1:
        sharding["zero"] = 0
    if shard > 0:
        sharding["dp"] = replicas * shard
    if replicas > 1 and shard > 1:
        sharding["shard"] = shard * cp
    return sharding


def _read_pipeline(given: Arguments, pp: int, layers: int) -> dict[str, Any]:
    if pp == 1:
        return {}
    name = given.text("parallelism.pipeline_parallel_schedule", "1F1B")
    order = given.text("parallelism.pipeline_parallel_schedule_csv", "")
    by_name = {theirs.lower(): own for own, theirs in SCHEDULES.items()}
    ends = {
        "count_embedding": given.count("parallelism.pipeline_parallel_first_stage_less_layers"),
        "count_loss": given.count("parallelism.pipeline_parallel_last_stage_less_layers"),
    }
    # torchtitan counts one layer for each end unless told otherwise
    counts = {key: 1 if value is None else value for key, value in ends.items()}
    of_stage = given.count("parallelism.pipeline_parallel_layers_per_stage")
    several = order or "1f1b" != name.lower() != "gpipe"
    chunks = 2 if several else 1
    if of_stage and layers:
        chunks = max(1, -(-(layers + sum(counts.values())) // of_stage) // pp)
    return {"schedule": order or by_name.get(name.lower(), name), "vpp": chunks, **counts}


def _read_batch(given: Arguments, pp: int, dp: int) -> dict[str, Any]:
    local = given.count("training.local_batch_size") or given.count("training.batch_size") or 8
    of_pipeline = given.count("parallelism.pipeline_parallel_microbatch_size") or 1
    together = given.whole("training.global_batch_size", -1)
    batch: dict[str, Any] = {
        "micro": local if pp == 1 else of_pipeline,
        "seq_len": given.count("training.seq_len") or 2048,
    }
    if together > 0:
        batch["global"] = together
    elif dp:
        batch["global"] = local * dp
    if together > 0 and pp > 1 and dp and together > local * dp:
        problem = (
            f"{together} sequences are {together // (local * dp)} pipelines of {local * dp}; read as one of them all"
        )
        given.notes.append(f"training.global_batch_size: {problem}")
    return batch


def _read_precision(given: Arguments) -> str:
    converters = given.value("model.converters", [])
    wide = {"bfloat16": "bf16", "float32": "fp32"}.get(given.text("training.mixed_precision_param", "bfloat16"), "bf16")
    is_fp8 = isinstance(converters, list) and any(str(name).startswith(("float8", "mx")) for name in converters)
    return "fp8" if is_fp8 else wide


def _read_execution(given: Arguments) -> dict[str, Any]:
    framework = COMPILED if given.switch("compile.enable") else EAGER
    reduce = given.text("training.mixed_precision_reduce", "float32")
    converters = given.value("model.converters", [])
    is_mx = isinstance(converters, list) and any(str(name).startswith("mx") for name in converters)
    recipe = "mxfp8" if is_mx else given.text("float8.recipe_name", FLOAT8[0])
    execution: dict[str, Any] = {
        "framework": framework,
        "gradient_dtype": "bf16" if reduce == "bfloat16" else "fp32",
        "fp8_recipe": recipe if _read_precision(given) == "fp8" and recipe != FLOAT8[0] else "",
    }
    if given.switch("parallelism.enable_async_tensor_parallel"):
        execution["overlap_tp"] = "pipelined"
    if given.text("optimizer.name", "AdamW").lower() not in ("adamw", "adam"):
        given.fault("optimizer.name", f"{given.text('optimizer.name', '')} is not modelled; write AdamW")
    given.passed_over("mx.recipe_name")
    return execution


def _read_recompute(given: Arguments, layers: int, stages: int) -> dict[str, Any]:
    mode = given.text("activation_checkpoint.mode", "selective")
    option = given.text("activation_checkpoint.selective_ac_option", "2")
    if mode != "selective":
        return {"recompute": mode}
    if not option.isdecimal():
        return {"recompute": "ops"}
    every = max(1, int(option))
    return {"recompute": "full", "recompute_method": "block", "recompute_layers": max(1, -(-layers // stages) // every)}
