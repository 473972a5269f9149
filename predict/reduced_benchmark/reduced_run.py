"""A run reduced to the GPUs at hand: first replicas and pipeline go, then expert ranks, then tensor-parallel ranks.

Each rank keeps its number of experts, its rows of its share of the sequence, and its microbatches.
"""

from dataclasses import replace

from predict.model.spec import DENSE, Experts, ModelSpec
from predict.run.execution import WHOLE_LAYERS
from predict.run.lengths import require_one_length
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import module_kind

LAYERS_PER_KIND = 2
"""Layers of each kind in a benchmark: they take turns, so that none finds its weights in a cache."""
MICROBATCHES_COUNTED = 2
"""The first finds no gradients, every later one does: further microbatches do not change the peak."""


def reduced_for_time(run: TrainingRun, gpus: int) -> TrainingRun:
    """The run whose whole layers are timed on at most `gpus` GPUs."""
    return only_whole_layers(reduced(run, gpus))


def reduced_for_memory(run: TrainingRun, gpus: int) -> TrainingRun:
    """The run that is trained on at most `gpus` GPUs to count its bytes: embedding, a few layers of each kind, and head, on
    one tensor-parallel group."""
    alone = reduced_for_time(run, max(1, min(gpus, run.plan.tp)))
    batch = replace(alone.batch, global_=min(MICROBATCHES_COUNTED, run.microbatches) * alone.batch.micro)
    return in_plain_torch(replace(with_plan(alone, Plan(tp=alone.plan.tp, sp=alone.plan.sp)), batch=batch))


def reduced(run: TrainingRun, gpus: int) -> TrainingRun:
    """The run on at most `gpus` GPUs; its plan is unchanged where it fits. Where `cp` is reduced, a context-parallel rank's
    share of the sequence becomes the whole of a shorter one. UserError for sequences of several lengths."""
    require_one_length(run.real, "a benchmark")
    return with_plan(run, _fitting(run.plan, gpus))


def only_whole_layers(run: TrainingRun) -> TrainingRun:
    """The run without what whole-layer modules do not do: exchange of keys or of tokens between experts, sharding,
    recomputation, overlap. A module of a mixture does not span a tensor-parallel group either."""
    plan = replace(run.plan, cp=1, zero=0, shard=0, recompute="none")
    if any(kind.sparse for kind in run.model.kinds()):
        plan = replace(plan, tp=1, sp=False, ep=1, etp=1)
    smaller = with_plan(run, plan)
    execution = replace(smaller.execution, overlap_tp="none", overlap_ep="none", attention="best", dropout=False)
    return replace(smaller, model=_few_plain_layers(smaller.model), execution=execution)


def in_plain_torch(run: TrainingRun) -> TrainingRun:
    """The run without a framework's kernels, padding, buffers or master weights, on one node."""
    execution = replace(run.execution, framework=WHOLE_LAYERS, elementwise="eager", optimizer="adamw")
    return on_one_node(replace(run, execution=execution))


def on_one_node(run: TrainingRun) -> TrainingRun:
    return replace(run, cluster=run.cluster.on_fewer(nodes=1, gpus_per_node=ranks_of(run.plan)))


def with_plan(run: TrainingRun, plan: Plan) -> TrainingRun:
    """The run under a smaller plan on as few nodes as it needs; experts, tokens and microbatches per rank are unchanged."""
    if plan == run.plan:
        return run
    plan = replace(plan, dp=_fewest_replicas(plan) if ranks_of(plan) != ranks_of(run.plan) else plan.dp)
    world, per_node = ranks_of(plan), min(ranks_of(plan), run.cluster.gpus_per_node)
    batch = Batch(
        global_=run.microbatches * run.batch.micro * plan.dp,
        micro=run.batch.micro,
        seq_len=run.batch.seq_len * plan.cp // run.plan.cp,
        encoder_seq_len=run.batch.encoder_seq_len,
    )
    experts = run.model.experts and _with_ranks(run.model.experts, run.plan.ep, plan.ep)
    return replace(
        run,
        plan=plan,
        batch=batch,
        model=replace(run.model, experts=experts),
        cluster=run.cluster.on_fewer(nodes=-(-world // per_node), gpus_per_node=per_node),
    )


def ranks_of(plan: Plan) -> int:
    return plan.tp * plan.pp * plan.cp * plan.dp


def _with_ranks(experts: Experts, ranks: int, fewer: int) -> Experts:
    """The experts of fewer ranks, as many on each; a token cannot choose more than there are."""
    count = experts.count * fewer // ranks
    return replace(experts, count=count, topk=min(experts.topk, count))


def _fewest_replicas(plan: Plan) -> int:
    """The fewest that the expert ranks still tile."""
    dp = 1
    while plan.tp * plan.cp * dp % (plan.ep * plan.etp):
        dp += 1
    return dp


def _fitting(plan: Plan, gpus: int) -> Plan:
    for reduce in (_without_replicas, _without_pipeline, _fewer_expert_ranks, _fewer_tensor_ranks):
        if ranks_of(plan) <= gpus:
            break
        plan = reduce(plan, gpus)
    return plan


def _without_replicas(plan: Plan, _: int) -> Plan:
    dp = _fewest_replicas(plan)
    shards = dp * plan.cp > 1
    return replace(plan, dp=dp, zero=plan.zero if shards else 0, shard=plan.shard if dp == plan.dp else 0)


def _without_pipeline(plan: Plan, _: int) -> Plan:
    return replace(
        plan, pp=1, vpp=1, schedule="1f1b", memory_limit=0, layout="", first_stage_layers=0, last_stage_layers=0
    )


def _fewer_expert_ranks(plan: Plan, gpus: int) -> Plan:
    return _largest_that_fits(plan, "ep", gpus)


def _fewer_tensor_ranks(plan: Plan, gpus: int) -> Plan:
    plan = _largest_that_fits(replace(plan, cp=1), "etp", gpus)
    return _largest_that_fits(plan, "tp", gpus)


def _largest_that_fits(plan: Plan, degree: str, gpus: int) -> Plan:
    """The plan with the largest divisor of a degree that fits, or 1."""
    whole: int = getattr(plan, degree)
    for ranks in sorted((ranks for ranks in range(1, whole + 1) if whole % ranks == 0), reverse=True):
        smaller = replace(plan, **{degree: ranks})  # type: ignore[arg-type]
        smaller = _without_replicas(replace(smaller, sp=smaller.sp and smaller.tp > 1), 0)
        if ranks_of(smaller) <= gpus:
            break
    return smaller


def _few_plain_layers(model: ModelSpec) -> ModelSpec:
    """The model with a few layers of each kind that has a module, and without the features that those modules lack."""
    kinds = dict.fromkeys(module_kind(model, kind) for kind in dict.fromkeys(model.kinds()))
    layers = tuple(kind for kind in kinds if kind for _ in range(LAYERS_PER_KIND))
    if not layers:
        return model
    return replace(
        model,
        layers=len(layers),
        layer_kinds=() if set(layers) == {DENSE} else layers,
        window=0,
        qk_norm=False,
        qk_norm_all_heads=False,
        query_gate=False,
        sinks=False,
        scaled_rope=False,
        norms_a_layer=2,
        rotary_dim=0,
        attention_cap=False,
        logit_cap=False,
        parallel_residual=False,
        mtp_layers=0,
    )
