"""torchtitan's TOML file (torchtitan/config/job_config.py), read as the sections of a run config."""

from __future__ import annotations

from typing import Any

from predict.config.foreign.arguments import Arguments
from predict.config.foreign.torchtitan import COMPILED, EAGER, FLOAT8, MODELS, ROTATIONS, SCHEDULES

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
