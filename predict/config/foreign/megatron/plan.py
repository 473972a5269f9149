"""Megatron-LM's arguments of a plan and a batch, both ways, by the names in `predict.config.aliases`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from predict.config.aliases import ALIASES, CP_METHODS
from predict.config.foreign.arguments import Arguments
from predict.config.foreign.statement import Statement
from predict.config.rules.stages import SPLITTING
from predict.run.plan import Plan
from predict.run.stage_layout import split_layers, stages_in
from predict.run.training_run import TrainingRun

NAMES: Mapping[tuple[str, str], str] = {(alias.section, alias.key): name for name, alias in ALIASES.items()}
"""Section and key → the argument."""
SHARDED: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage → `--data-parallel-sharding-strategy` of Megatron-FSDP."""
PLAIN = ("tp", "pp", "cp", "ep")


def write_plan(run: TrainingRun, statement: Statement) -> None:
    """Add the arguments of a plan and its batch; degrees of 1 are left out."""
    plan, say = run.plan, statement.say
    say("plan.dp")  # the ranks that the other degrees leave over
    for key in PLAIN:
        value = getattr(plan, key)
        say(f"plan.{key}", **({NAMES["plan", key]: value} if value > 1 else {}))
    say("plan.sp", "plan.etp", **({NAMES["plan", "sp"]: True} if plan.sp else {}))
    if run.model.experts is not None:
        say(**{NAMES["plan", "etp"]: plan.etp})
    if plan.cp > 1:
        method = next(name for name, own in CP_METHODS.items() if own == plan.cp_method)
        say("plan.cp_method", **{NAMES["plan", "cp_method"]: method})
    _write_pipeline(run, statement)
    _write_sharding(run, statement)
    _write_recompute(plan, statement)
    of_batch = {"global": run.batch.global_, "micro": run.batch.micro, "seq_len": run.batch.seq_len}
    say(**{NAMES["batch", key]: value for key, value in of_batch.items()})


def _write_pipeline(run: TrainingRun, statement: Statement) -> None:
    plan, say = run.plan, statement.say
    usual = "interleaved-1f1b" if plan.vpp > 1 else "1f1b"
    if plan.schedule == usual or plan.pp == 1:
        say("plan.schedule")
    else:
        statement.cannot("plan.schedule", plan.schedule, f"Megatron-LM runs {usual} with this pp and vpp")
    say("plan.vpp", *(f"plan.{key}" for key in SPLITTING))
    if plan.layout or plan.count_embedding > 1 or plan.count_loss > 1 or not _divides(run):
        say(**{NAMES["plan", "layout"]: _layout(run)})
        return
    if plan.vpp > 1:
        say(**{NAMES["plan", "vpp"]: plan.vpp})
    ends = {key: getattr(plan, key) for key in SPLITTING[1:]}
    say(**{NAMES["plan", key]: bool(n) if "count" in key else n for key, n in ends.items() if n})


def _divides(run: TrainingRun) -> bool:
    """Whether the layers divide into equal chunks, beside the ranks that are given their own; Megatron-LM splits no others
    without a layout."""
    plan = run.plan
    own = [layers for layers in (plan.first_stage_layers, plan.last_stage_layers) if layers]
    rest = run.model.layers + plan.count_embedding + plan.count_loss - sum(own)
    ranks = plan.pp - len(own)
    return all(layers % plan.vpp == 0 for layers in own) and rest % (max(ranks, 1) * plan.vpp) == 0


def _layout(run: TrainingRun) -> str:
    """The layout in Megatron's letters, whose stages are as many as its `|` separate."""
    shares = split_layers(run.model.layers, run.plan.pp * run.plan.vpp, run.plan)
    stages = [f"t*{share}" if share else "" for share in shares]
    stages[0], stages[-1] = f"E{stages[0]}", f"{stages[-1]}{'m' * run.model.mtp_layers}L"
    return "|".join(stages)


def _write_sharding(run: TrainingRun, statement: Statement) -> None:
    plan, say = run.plan, statement.say
    say("plan.zero", "plan.shard")
    if not plan.zero:
        return
    say(**{NAMES["plan", "zero"]: True})
    if plan.zero > 1:
        say(use_megatron_fsdp=True, data_parallel_sharding_strategy=SHARDED[plan.zero])
    if plan.shard:
        say(num_distributed_optimizer_instances=plan.dp * plan.cp // plan.shard)


def _write_recompute(plan: Plan, statement: Statement) -> None:
    say = statement.say
    say(*(f"plan.{key}" for key in ("recompute", "recompute_modules", "recompute_method", "recompute_layers")))
    if plan.recompute == "ops":
        statement.cannot(
            "plan.recompute", plan.recompute, "Megatron-LM recomputes modules or whole layers; nothing is written"
        )
    if plan.recompute in ("none", "ops"):
        return
    say(**{NAMES["plan", "recompute"]: plan.recompute})
    if plan.recompute == "selective":
        say(**{NAMES["plan", "recompute_modules"]: list(plan.modules_recomputed)})
    else:
        layers = plan.recompute_layers if plan.recompute_method == "block" else 1
        say(**{NAMES["plan", "recompute_method"]: plan.recompute_method, NAMES["plan", "recompute_layers"]: layers})


def read_batch(given: Arguments) -> dict[str, Any]:
    read = {key: given.count(NAMES["batch", key]) for key in ("global", "micro", "seq_len")}
    return {key: value for key, value in read.items() if value is not None}


def read_plan(given: Arguments, *, layers: int) -> dict[str, Any]:
    """The keys of `plan` that differ from its defaults, without dp, which the size of the cluster decides."""
    plan: dict[str, Any] = {key: given.count(NAMES["plan", key]) or 1 for key in PLAIN}
    plan["sp"] = given.switch(NAMES["plan", "sp"]) and plan["tp"] > 1
    # Megatron-LM splits experts as attention is split where nothing else is said
    etp = given.count(NAMES["plan", "etp"]) or plan["tp"]
    plan["etp"] = etp if given.count("num_experts") else 1
    method = given.text(NAMES["plan", "cp_method"], "p2p")
    plan["cp_method"] = CP_METHODS.get(method, method) if plan["cp"] > 1 else "ring"
    plan |= _read_pipeline(given, plan["pp"], layers) | _read_sharding(given) | _read_recompute(given)
    default = Plan()
    return {key: value for key, value in plan.items() if value != getattr(default, key, None)}


def _read_pipeline(given: Arguments, pp: int, layers: int) -> dict[str, Any]:
    vpp = given.count(NAMES["plan", "vpp"]) or given.count("virtual_pipeline_model_parallel_size") or 1
    of_chunk = given.count("num_layers_per_virtual_pipeline_stage")
    if of_chunk and layers:
        vpp = max(1, layers // (pp * of_chunk))
    layout = given.text(NAMES["plan", "layout"], "")
    read: dict[str, Any] = {}
    if layout:
        read["layout"], vpp = layout, max(1, stages_in(layout) // pp)
    else:
        for key in SPLITTING[1:]:
            name = NAMES["plan", key]
            read[key] = int(given.switch(name)) if "count" in key else given.count(name) or 0
    return read | {"vpp": vpp, "schedule": "interleaved-1f1b" if vpp > 1 else "1f1b"}


def _read_sharding(given: Arguments) -> dict[str, Any]:
    zero = int(given.switch(NAMES["plan", "zero"]))
    strategy = given.text("data_parallel_sharding_strategy", "no_shard")
    if given.switch("use_megatron_fsdp"):
        zero = next((stage for stage, name in SHARDED.items() if name == strategy), zero)
    if given.switch("use_torch_fsdp2"):
        zero = 3
    return {"zero": zero}


def _read_recompute(given: Arguments) -> dict[str, Any]:
    how = given.text(NAMES["plan", "recompute"], "none")
    modules = given.value(NAMES["plan", "recompute_modules"], ["core_attn"])
    method = given.text(NAMES["plan", "recompute_method"], "uniform")
    layers = given.count(NAMES["plan", "recompute_layers"]) or 1
    if how == "selective":
        names = modules if isinstance(modules, list) else [modules]
        return {"recompute": how, "recompute_modules": ",".join(map(str, names))}
    if how == "full" and method == "block":
        return {"recompute": how, "recompute_method": method, "recompute_layers": layers}
    return {"recompute": how}
