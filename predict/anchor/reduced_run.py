"""A run cut down to the GPUs at hand: first replicas and pipeline, then expert ranks, then tensor-parallel ranks.

The experts that a rank holds stay as many, so do the rows of its share of the sequence, and the microbatches.
"""

from __future__ import annotations

from dataclasses import replace

from predict.model.layer_kinds import DENSE
from predict.model.parts.mixture import Experts
from predict.model.spec import ModelSpec
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import module_kind

KEPT = 2
"""Layers of each kind that stay: they take turns, so that none finds its weights in a cache."""


def reduced(run: TrainingRun, gpus: int) -> TrainingRun:
    """The run on at most `gpus` GPUs; its plan as it is where it fits. A context-parallel rank's share of the sequence is
    kept as the whole of a shorter one where `cp` is reduced."""
    return with_plan(run, _fitting(run.plan, gpus))


def timeable(run: TrainingRun) -> TrainingRun:
    """What of a run whole-layer modules do: no exchange of keys or of tokens between experts, none of what shards, repeats
    or hides, and plain layers. A mixture's module spans no tensor-parallel group either."""
    plan = replace(run.plan, cp=1, zero=0, shard=0, recompute="none")
    if any(kind.sparse for kind in run.model.kinds()):
        plan = replace(plan, tp=1, sp=False, ep=1, etp=1)
    cut = with_plan(run, plan)
    execution = replace(cut.execution, overlap_tp="none", overlap_ep="none", attention="best", dropout=False)
    return replace(cut, model=_plain(cut.model), execution=execution)


def with_plan(run: TrainingRun, plan: Plan) -> TrainingRun:
    """The run under a smaller plan: each rank with as many experts, tokens and microbatches, on as few nodes as it needs."""
    if plan == run.plan:
        return run
    plan = replace(plan, dp=_replicas(plan) if ranks_of(plan) != ranks_of(run.plan) else plan.dp)
    world, per_node = ranks_of(plan), min(ranks_of(plan), run.cluster.gpus_per_node)
    batch = Batch(
        global_=run.microbatches * run.batch.micro * plan.dp,
        micro=run.batch.micro,
        seq_len=run.batch.seq_len * plan.cp // run.plan.cp,
    )
    experts = run.model.experts and _held(run.model.experts, run.plan.ep, plan.ep)
    return replace(
        run,
        plan=plan,
        batch=batch,
        model=replace(run.model, experts=experts),
        cluster=replace(run.cluster, nodes=-(-world // per_node), gpus_per_node=per_node),
    )


def ranks_of(plan: Plan) -> int:
    return plan.tp * plan.pp * plan.cp * plan.dp


def _held(experts: Experts, ranks: int, fewer: int) -> Experts:
    """A rank's experts stay as many; a token cannot choose more than there are."""
    count = experts.count * fewer // ranks
    return replace(experts, count=count, topk=min(experts.topk, count))


def _replicas(plan: Plan) -> int:
    """The fewest that the experts still fold into."""
    dp = 1
    while plan.tp * plan.cp * dp % (plan.ep * plan.etp):
        dp += 1
    return dp


def _fitting(plan: Plan, gpus: int) -> Plan:
    for cut in (_without_replicas, _without_pipeline, _fewer_expert_ranks, _fewer_tensor_ranks):
        if ranks_of(plan) <= gpus:
            break
        plan = cut(plan, gpus)
    return plan


def _without_replicas(plan: Plan, _: int) -> Plan:
    dp = _replicas(plan)
    shards = dp * plan.cp > 1
    return replace(plan, dp=dp, zero=plan.zero if shards else 0, shard=plan.shard if dp == plan.dp else 0)


def _without_pipeline(plan: Plan, _: int) -> Plan:
    return replace(
        plan, pp=1, vpp=1, schedule="1f1b", memory_limit=0, layout="", first_stage_layers=0, last_stage_layers=0
    )


def _fewer_expert_ranks(plan: Plan, gpus: int) -> Plan:
    return _largest(plan, "ep", gpus)


def _fewer_tensor_ranks(plan: Plan, gpus: int) -> Plan:
    plan = _largest(replace(plan, cp=1), "etp", gpus)
    return _largest(plan, "tp", gpus)


def _largest(plan: Plan, degree: str, gpus: int) -> Plan:
    """The largest divisor of a degree that fits, or 1."""
    whole: int = getattr(plan, degree)
    for ranks in sorted((ranks for ranks in range(1, whole + 1) if whole % ranks == 0), reverse=True):
        smaller = _tidy(replace(plan, **{degree: ranks}))  # type: ignore[arg-type]
        if ranks_of(smaller) <= gpus:
            break
    return smaller


def _tidy(plan: Plan) -> Plan:
    plan = replace(plan, sp=plan.sp and plan.tp > 1)
    return _without_replicas(plan, 0)


def _plain(model: ModelSpec) -> ModelSpec:
    """With a few layers of each kind that has a module, and without what those modules leave out."""
    timed = dict.fromkeys(module_kind(model, kind) for kind in dict.fromkeys(model.kinds()))
    kept = tuple(kind for kind in timed if kind for _ in range(KEPT))
    if not kept:
        return model
    return replace(
        model,
        layers=len(kept),
        layer_kinds=() if set(kept) == {DENSE} else kept,
        window=0,
        qk_norm=False,
        query_gate=False,
        sinks=False,
        norms_a_layer=2,
        rotary_dim=0,
        attention_cap=False,
        logit_cap=False,
        parallel_residual=False,
        mtp_layers=0,
    )
