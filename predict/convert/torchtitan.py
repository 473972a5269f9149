"""torchtitan's TOML file (torchtitan/config/job_config.py), both ways, setting by setting."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from predict.convert.arguments import (
    Arguments,
    Setting,
    Statement,
    degree,
    own_name,
    read_settings,
    setting,
    settings_of,
    write_settings,
)
from predict.convert.megatron_model import model_section
from predict.run.stages import split_layers
from predict.run.training_run import TrainingRun
from sampling.files.faults import shown

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
CONVERTERS: Mapping[str, str] = {
    f"{place}{kind}": kind for place in ("", "quantize.linear.", "quantize.grouped_mm.") for kind in ("float8", "mx")
}
"""Name in `model.converters` → the format that it stands for; the bare ones are of releases before late 2025."""
MX_SECTIONS = tuple(name for name, kind in CONVERTERS.items() if kind == "mx")
COMPILED, EAGER = "torchtitan", "fsdp"
"""The frameworks that stand for torchtitan with torch.compile and without it."""
TP, CP, EP, ETP, PP = (
    f"parallelism.{name}_parallel_degree" for name in ("tensor", "context", "expert", "expert_tensor", "pipeline")
)
REPLICAS, SHARDS = (f"parallelism.data_parallel_{name}_degree" for name in ("replicate", "shard"))
RESHARD, ROTATION = "parallelism.fsdp_reshard_after_forward", "parallelism.context_parallel_rotate_method"
ASYNC_TP = "parallelism.enable_async_tensor_parallel"
SCHEDULE, ORDER = "parallelism.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule_csv"
OF_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
OF_PIPELINE = "parallelism.pipeline_parallel_microbatch_size"
ENDS: Mapping[str, str] = {
    "plan.count_embedding": "parallelism.pipeline_parallel_first_stage_less_layers",
    "plan.count_loss": "parallelism.pipeline_parallel_last_stage_less_layers",
}
LOCAL, GLOBAL, SEQ_LEN = "training.local_batch_size", "training.global_batch_size", "training.seq_len"
PARAMETERS, REDUCTION = "training.mixed_precision_param", "training.mixed_precision_reduce"
PARTS = "parallelism.module_fqns_per_model_part"
"""Names of the modules of each stage, in their order."""
MODE, OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"


def framework_of(framework: str) -> str:
    """The one of the two frameworks that a run's own is taken for."""
    return EAGER if framework == EAGER else COMPILED


def _write_model(run: TrainingRun, statement: Statement) -> None:
    # the shape is a flavor's, or none of its fields is expressed: one reason covers it
    statement.said.update(f"model.{name}" for name in settings_of(run.model))
    section = model_section(run.model)
    known = MODELS.get(section) if isinstance(section, str) else None
    if known is None:
        statement.cannot(
            "model", run.model.name, "torchtitan has no flavor of these sizes; register one under this name"
        )
        known = (run.model.name, run.model.name)
    statement.say(**{"model.name": known[0], "model.flavor": known[1]})


def read_model_name(given: Arguments) -> str:
    """The shipped model of a name and flavor; the two names themselves where no model has them."""
    name, flavor = given.text("model.name", ""), given.text("model.flavor", "")
    found = next((own for own, theirs in MODELS.items() if theirs == (name, flavor)), "")
    return found or f"{name}-{flavor}".strip("-")


def _write_batch(run: TrainingRun, statement: Statement) -> None:
    local = run.batch.micro if run.plan.pp == 1 else run.batch.global_ // run.plan.dp
    statement.say(**{LOCAL: local, GLOBAL: run.batch.global_, SEQ_LEN: run.batch.seq_len})


def _read_batch(given: Arguments) -> dict[str, Any]:
    pp, dp = given.count(PP) or 1, _data_parallel(given)
    local = given.count(LOCAL) or 8
    of_pipeline = given.count(OF_PIPELINE) or 1
    together = given.whole(GLOBAL, -1)
    batch: dict[str, Any] = {
        "batch.micro": local if pp == 1 else of_pipeline,
        "batch.seq_len": given.count(SEQ_LEN) or 2048,
    }
    if together > 0:
        batch["batch.global"] = together
    elif dp:
        batch["batch.global"] = local * dp
    if together > 0 and pp > 1 and dp and together > local * dp:
        problem = (
            f"{together} sequences are {together // (local * dp)} pipelines of {local * dp}; read as one of them all"
        )
        given.notes.append(f"training.global_batch_size: {problem}")
    return batch


def _write_dtypes(run: TrainingRun, statement: Statement) -> None:
    execution = run.execution
    statement.say("execution.gradient_dtype", "execution.fp8_recipe")
    if run.precision in DTYPES:
        statement.say(**{PARAMETERS: DTYPES[run.precision]})
    else:
        statement.cannot("precision", run.precision, "torchtitan trains in bfloat16 or float32")
    statement.say(**{REDUCTION: REDUCED["fp32"]})
    if execution.gradient_dtype != "fp32":
        statement.cannot("execution.gradient_dtype", execution.gradient_dtype, "torchtitan reduces float32 alone")
    if run.precision == "tf32":
        statement.cannot("precision", "tf32", "written as float32; allow tf32 in torch")
    if run.precision == "fp8":
        _write_fp8(execution.fp8_recipe or FLOAT8[0], statement)


def _write_fp8(recipe: str, statement: Statement) -> None:
    if recipe == "mxfp8":
        statement.say(**{"model.converters": ["mx"], "mx.recipe_name": recipe})
        return
    if recipe not in FLOAT8:
        statement.cannot(
            "execution.fp8_recipe", recipe, f"written as {FLOAT8[0]}; torchtitan has rowwise and mxfp8 too"
        )
        recipe = FLOAT8[0]
    statement.say(**{"model.converters": ["float8"], "float8.recipe_name": recipe})


def _read_dtypes(given: Arguments) -> dict[str, Any]:
    converters = given.value("model.converters", [])
    written = ",".join(map(str, converters)) if isinstance(converters, list) else str(converters)
    named = [name.strip() for name in written.split(",") if name.strip()]
    for name in named:
        if name not in CONVERTERS:
            given.fault("model.converters", f"{shown(name)} is not read; {', '.join(CONVERTERS)} are")
    kinds = {CONVERTERS[name] for name in named if name in CONVERTERS}
    is_fp8 = bool(kinds)
    if is_fp8 and all("grouped_mm" in name for name in named):
        given.notes.append(
            f"model.converters: {', '.join(named)} alone: the products outside of experts are taken as fp8 too"
        )
    wide = own_name(REDUCED, given.text(PARAMETERS, "bfloat16"), "bf16")
    recipe = given.text("quantize.linear.float8.recipe_name", given.text("float8.recipe_name", FLOAT8[0]))
    for section in MX_SECTIONS:
        in_mx = given.text(f"{section}.recipe_name", "mxfp8")
        if "mx" in kinds and not in_mx.startswith("mxfp8"):
            given.fault(f"{section}.recipe_name", f"{shown(in_mx)} is not modelled; mxfp8 is")
    if "mx" in kinds:
        recipe = "mxfp8"
    return {
        "precision": "fp8" if is_fp8 else wide,
        "execution.gradient_dtype": own_name(REDUCED, given.text(REDUCTION, "float32"), "fp32"),
        "execution.fp8_recipe": recipe if is_fp8 and recipe != FLOAT8[0] else "",
    }


def _read_optimizer(given: Arguments) -> dict[str, Any]:
    name = given.text("optimizer.name", "AdamW")
    if name.lower() not in ("adamw", "adam"):
        given.fault("optimizer.name", f"{name} is not modelled; write AdamW")
    return {}


def _write_data_parallel(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    shard = plan.dp if not plan.shard else max(1, plan.shard // plan.cp)
    if plan.zero == 0:
        shard = 1
    settings: dict[str, Any] = {
        REPLICAS: plan.dp // shard,
        SHARDS: shard,
    }
    if plan.zero:
        settings[RESHARD] = RESHARDING[max(plan.zero, 2)]
    if plan.zero == 0 and plan.cp > 1:
        statement.cannot("plan.zero", 0, "FSDP shards over context-parallel ranks: read as stage 2 or 3")
    if plan.zero == 1:
        statement.cannot("plan.zero", 1, "FSDP shards the gradients as well: written as stage 2")
    statement.say("plan.dp", "plan.zero", "plan.shard", **settings)


def _data_parallel(given: Arguments) -> int:
    """dp, where both degrees are given; else 0, and the rest of the ranks shard."""
    shard = given.whole(SHARDS, -1)
    return (given.count(REPLICAS) or 1) * max(0, shard)


def _read_data_parallel(given: Arguments) -> dict[str, Any]:
    """dp, where it is known, ZeRO's stage and the ranks that share a copy."""
    replicas = given.count(REPLICAS) or 1
    shard = given.whole(SHARDS, -1)
    resharding = given.text(RESHARD, "default")
    pp, cp = given.count(PP) or 1, given.count(CP) or 1
    keeps = resharding == RESHARDING[2] or (resharding == "default" and pp > 1)
    sharding: dict[str, Any] = {"plan.zero": 2 if keeps else 3}
    if shard == 1 and cp == 1:
        sharding["plan.zero"] = 0
    if dp := _data_parallel(given):
        sharding["plan.dp"] = dp
    if replicas > 1 and shard > 1:
        sharding["plan.shard"] = shard * cp
    return sharding


def _write_rotation(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    statement.say("plan.cp_method")
    if plan.cp > 1 and plan.cp_method in ROTATIONS:
        statement.say(**{ROTATION: ROTATIONS[plan.cp_method]})
    elif plan.cp > 1:
        statement.cannot("plan.cp_method", plan.cp_method, "torchtitan passes keys and values on, or gathers them")


def _read_rotation(given: Arguments) -> dict[str, Any]:
    if (given.count(CP) or 1) == 1:
        return {}
    rotation = given.text(ROTATION, "allgather")
    return {"plan.cp_method": own_name(ROTATIONS, rotation, rotation)}


def _write_sequence_parallel(run: TrainingRun, statement: Statement) -> None:
    statement.say("plan.sp")
    if run.plan.tp > 1 and not run.plan.sp:
        statement.cannot("plan.sp", False, "torchtitan's tensor parallelism always splits the sequence too")


def _write_overlap_tp(run: TrainingRun, statement: Statement) -> None:
    overlap = run.execution.overlap_tp
    if overlap not in ("none", "pipelined"):
        return
    enabled = overlap == "pipelined"
    if enabled and framework_of(run.execution.framework) == EAGER:
        enabled = False
        why = "torchtitan's asynchronous tensor parallelism needs torch.compile, which this run is without"
        statement.cannot("execution.overlap_tp", overlap, why)
    statement.say("execution.overlap_tp", **{ASYNC_TP: enabled})


def _write_pipeline(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    statement.say("plan.pp", "plan.vpp", "plan.schedule", **{PP: plan.pp})
    if plan.pp == 1:
        return
    settings: dict[str, Any] = {OF_PIPELINE: run.batch.micro}
    if plan.schedule.lower().endswith(".csv"):
        settings[ORDER] = plan.schedule
    elif plan.schedule in SCHEDULES:
        settings[SCHEDULE] = SCHEDULES[plan.schedule]
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
    settings[OF_STAGE] = of_stage
    settings |= dict(zip(ENDS.values(), (plan.count_embedding, plan.count_loss), strict=True))
    statement.say(*ENDS, "plan.layout", "plan.first_stage_layers", "plan.last_stage_layers", **settings)
    if plan.layout or plan.first_stage_layers or plan.last_stage_layers:
        shares = ",".join(map(str, split_layers(run.model.layers, stages, plan)))
        statement.cannot("plan.layout", shares, "written as an even split; name each stage's modules in torchtitan")


def _read_pipeline(given: Arguments) -> dict[str, Any]:
    pp = given.count(PP) or 1
    if pp == 1:
        given.passed_over(SCHEDULE)
        return {"plan.pp": pp}
    name = given.text(SCHEDULE, "1F1B")
    order = given.text(ORDER, "")
    by_name = {theirs.lower(): own for own, theirs in SCHEDULES.items()}
    ends = {key: given.count(name) for key, name in ENDS.items()}
    # torchtitan counts one layer for each end unless it is given otherwise
    counts = {key: 1 if value is None else value for key, value in ends.items()}
    of_stage = given.count(OF_STAGE)
    several = order or "1f1b" != name.lower() != "gpipe"
    chunks = 2 if several else 1
    if of_stage and given.layers:
        chunks = max(1, -(-(given.layers + sum(counts.values())) // of_stage) // pp)
    schedule = order or by_name.get(name.lower(), name)
    read = {"plan.pp": pp, "plan.schedule": schedule}
    if layers := _layers_named(given):
        return {**read, "plan.vpp": max(1, len(layers) // pp), "plan.layout": ",".join(map(str, layers))}
    return {**read, "plan.vpp": chunks, **counts}


def _layers_named(given: Arguments) -> list[int]:
    """Layers of each stage by the names of its modules; empty where they are not given."""
    stages = given.value(PARTS, [])
    return [sum(str(name).startswith("layers.") for name in stage) for stage in stages if isinstance(stage, list)]


def _write_recompute(run: TrainingRun, statement: Statement) -> None:
    plan = run.plan
    mode, option = plan.recompute, ""
    if plan.recompute in ("selective", "ops"):
        mode, option = "selective", "op"
    if plan.recompute == "selective":
        why = "written as torchtitan's choice of operators, which keeps half of the matrix products' results"
        statement.cannot("plan.recompute_modules", plan.recompute_modules, why)
    elif plan.recompute == "full" and plan.recompute_method == "block":
        chunk = max(split_layers(run.model.layers, plan.pp * plan.vpp, plan))
        every, rest = divmod(chunk, min(plan.recompute_layers, chunk))
        mode, option = "selective", str(every)
        if rest:
            statement.cannot("plan.recompute_layers", plan.recompute_layers, f"written as one layer in {every}")
    statement.say(
        *(f"plan.{key}" for key in ("recompute", "recompute_modules", "recompute_method", "recompute_layers")),
        **{MODE: mode},
        **({OPTION: option} if option else {}),
    )


def _read_recompute(given: Arguments) -> dict[str, Any]:
    mode = given.text(MODE, "selective")
    option = given.text(OPTION, "2")
    if mode != "selective":
        return {"plan.recompute": mode}
    if not option.isdecimal():
        return {"plan.recompute": "ops"}
    pipeline = _read_pipeline(given)
    stages = pipeline["plan.pp"] * pipeline.get("plan.vpp", 1)
    block = max(1, -(-given.layers // stages) // max(1, int(option)))
    return {"plan.recompute": "full", "plan.recompute_method": "block", "plan.recompute_layers": block}


def _write_compile(run: TrainingRun, statement: Statement) -> None:
    statement.say("execution.framework", **{"compile.enable": framework_of(run.execution.framework) == COMPILED})


def _read_compile(given: Arguments) -> dict[str, Any]:
    """Reads what is compiled: the blocks, which make the framework, and the loss (torchtitan, config, `Compile.components`)."""
    parts = given.value("compile.components", ["model", "loss"])
    if not given.switch("compile.enable"):
        return {"execution.framework": EAGER}
    has_blocks, has_loss = (part in (parts or []) for part in ("model", "loss"))
    usual = {} if has_blocks == has_loss else {"execution.fuse_loss": has_loss}
    return {"execution.framework": COMPILED if has_blocks else EAGER, **usual}


TRAINING = (
    Setting(write=_write_batch, read=_read_batch),
    Setting(write=_write_dtypes, read=_read_dtypes),
    Setting(write=_write_compile, read=_read_compile),
    Setting(write=lambda run, statement: statement.say(**{"optimizer.name": "AdamW"}), read=_read_optimizer),
)
PARALLELISM = (
    Setting(write=_write_data_parallel, read=_read_data_parallel),
    degree("plan.tp", TP),
    degree("plan.cp", CP),
    degree("plan.ep", EP),
    setting(
        "plan.etp",
        write=lambda value, run: {} if run.model.experts is None else {ETP: value},
        read=lambda given: given.count(ETP) or 1,
    ),
    Setting(write=_write_rotation, read=_read_rotation),
    Setting(
        write=_write_sequence_parallel,
        read=lambda given: {"plan.sp": (given.count(TP) or 1) > 1},
    ),
    Setting(
        write=_write_overlap_tp,
        read=lambda given: {"execution.overlap_tp": "pipelined"} if given.switch(ASYNC_TP) else {},
    ),
    Setting(write=_write_pipeline, read=_read_pipeline),
    Setting(write=_write_recompute, read=_read_recompute),
)


def write(run: TrainingRun, statement: Statement) -> None:
    """Add the settings of a run, as `section.key`."""
    _write_model(run, statement)
    write_settings((*TRAINING, *PARALLELISM), run, statement)


def read_sections(given: Arguments) -> dict[str, Any]:
    """The plan, batch, precision and execution, each key that differs from its default."""
    found = read_settings((*PARALLELISM, *TRAINING), given)
    return {**found, "precision": found["precision"][""]}


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
