"""accelerate's configuration file and the options of `accelerate launch`: FSDP, DeepSpeed and DDP.

Names: accelerate, commands/config/config_args.py and commands/launch.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import Reading, Sections, Tool, count, in_sections, key_lists, needs_file, read_table, written
from predict.convert.tools.transformers_trainer import COMPILED, FRAMEWORK, ZERO, fsdp_of
from sampling.files.faults import shown

PRECISIONS: Mapping[str, str | None] = {"no": None, "fp32": None, "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
"""Words of mixed_precision; without it the dtype is that in which the script loads the model."""
KINDS = ("fsdp", "deepspeed", "multi_gpu", "no")
CHOSEN: Mapping[str, str] = {"use_deepspeed": "deepspeed", "use_fsdp": "fsdp", "multi_gpu": "multi_gpu"}
"""Switch of the command line → the kind that it chooses, whatever the file has."""
OF_DEEPSPEED = (
    *("zero_stage", "zero3_*", "offload_*", "gradient_accumulation_steps", "gradient_clipping"),
    *(
        "deepspeed_config_file",
        "deepspeed_hostfile",
        "deepspeed_*filter",
        "deepspeed_*launcher",
        "deepspeed_moe_layer*",
    ),
)
"""Options of the command line that stand in the file's `deepspeed_config` (commands/launch.py, `deepspeed_args`)."""
TABLE = (
    count("batch.accumulation", "deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps"),
    count("plan.tp", "parallelism_config.parallelism_config_tp_size"),
    count("plan.cp", "parallelism_config.parallelism_config_cp_size", "parallelism_config.parallelism_config_sp_size"),
)
WRITTEN = (
    written("precision", lambda name: {"mixed_precision": name} if name in PRECISIONS else None),
    written(
        "plan.zero", lambda stage: {"fsdp_config.fsdp_reshard_after_forward": stage == 3} if stage in (2, 3) else None
    ),
    written(
        "plan.recompute",
        lambda mode: (
            {"fsdp_config.fsdp_activation_checkpointing": mode == "full"} if mode in ("none", "full") else None
        ),
    ),
    written(
        "execution.framework",
        lambda name: {"dynamo_config.dynamo_backend": "INDUCTOR"} if name == COMPILED else None,
    ),
)
RESHARDED = "parallelism_config.parallelism_config_{}"


def _cluster(given: Arguments) -> dict[str, int]:
    machines = given.count("num_machines") or 1
    processes = given.count("num_processes")
    if not processes:
        return {}
    if processes % machines:
        given.fault("num_processes", f"{processes} do not divide over {machines} machines; correct one")
    return {"nodes": machines, "gpus_per_node": max(1, processes // machines)}


def _read(reading: Reading) -> Sections:
    given = reading.given
    kind = given.text("distributed_type", "no").lower()
    kind = next((chosen for name, chosen in CHOSEN.items() if _is_on(given, name)), kind)
    others = tuple(f"{other}_config." for other in ("fsdp", "deepspeed") if other != kind)
    given.passed_over(*CHOSEN, *(name for name in given.values if name.startswith(others)))
    given = replace(given, values={name: value for name, value in given.values.items() if not name.startswith(others)})
    values = read_table(TABLE, given)
    if kind not in KINDS:
        given.fault("distributed_type", f"{shown(kind)} is not read; {', '.join(word.upper() for word in KINDS)} are")
    precision = given.text("mixed_precision", "no").lower()
    if precision not in PRECISIONS:
        given.fault("mixed_precision", f"{shown(precision)} is not modelled; {', '.join(PRECISIONS)} are")
    plan, execution = values.setdefault("plan", {}), values.setdefault("execution", {})
    if PRECISIONS.get(precision):
        values["top"] = {"precision": PRECISIONS[precision]}
    if precision == "fp16":
        execution["loss_scaling"] = True
    if kind == "fsdp":
        plan |= fsdp_of(given, [])
    if kind == "deepspeed":
        execution["framework"] = ZERO
        _deepspeed(reading, plan, execution)
    if given.text("dynamo_config.dynamo_backend", given.text("dynamo_backend", "no")).lower() not in ("no", "eager"):
        execution.setdefault("framework", COMPILED)
    _parallelism(given, plan)
    usual = {"execution": {"framework": FRAMEWORK}}  # the trainer may start DeepSpeed, or compile
    return {**in_sections(values), **offload_of(given), "cluster": _cluster(given), "usual": usual}


def _is_on(given: Arguments, name: str) -> bool:
    return name in given.values and given.switch(name)


def _deepspeed(reading: Reading, plan: dict[str, Any], execution: dict[str, Any]) -> None:
    given = reading.given
    if needs_file(reading, "deepspeed_config.deepspeed_config_file", "sharding, offload and the batch"):
        return
    stage = given.count("deepspeed_config.zero_stage")
    plan["zero"] = 2 if stage is None else stage  # launch.py: the default of zero_stage
    execution["overlap_gradients"] = plan["zero"] == 3  # DeepSpeed's own default, which accelerate leaves
    clipping = given.values.get("deepspeed_config.gradient_clipping")
    if clipping is not None:
        execution["clip_gradients"] = given.number("deepspeed_config.gradient_clipping", 0.0) > 0


def _parallelism(given: Arguments, plan: dict[str, Any]) -> None:
    replicas = given.count(RESHARDED.format("dp_replicate_size")) or 1
    shards = given.count(RESHARDED.format("dp_shard_size")) or 1
    if replicas > 1 and shards > 1:
        plan["shard"] = shards * plan.get("cp", 1)
    if replicas > 1 and shards == 1:
        plan["zero"] = 0
    if plan.get("cp", 1) > 1:
        ulysses = given.text(RESHARDED.format("cp_backend"), given.text(RESHARDED.format("sp_backend"), "torch"))
        rotation = given.text(RESHARDED.format("cp_comm_strategy"), "allgather")
        plan["cp_method"] = "all_to_all" if ulysses == "deepspeed" else {"alltoall": "ring"}.get(rotation, "all_gather")
    if plan.get("tp", 1) > 1:
        plan["sp"] = False


TOOLS = (
    Tool(
        name="accelerate",
        marks=(
            "distributed_type compute_environment",
            "distributed_type mixed_precision",
            "distributed_type num_processes",
        ),
        programs=r"^accelerate launch$",
        table=(*TABLE, *WRITTEN),
        read=_read,
        keys=key_lists("accelerate"),
        arguments_file="config_file",
        nested={
            "fsdp_*": "fsdp_config",
            "parallelism_config_*": "parallelism_config",
            "dynamo_*": "dynamo_config",
            **dict.fromkeys(OF_DEEPSPEED, "deepspeed_config"),
        },
    ),
)
