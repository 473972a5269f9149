"""The end of a step on one pipeline rank: gradients are reduced, weights updated and, where they are sharded, gathered."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from predict.layers.adapters import trained_in_embedding, trained_in_head, trained_in_layer, trained_in_tower
from predict.rank.blocks import Block, Blocks, Calls, Message, OverlappedCommunication, single
from predict.rank.exchanges import OFFLOAD
from predict.rank.groups import Groups, RankGroup, groups_of
from predict.rank.share import (
    Weights,
    embedding_weights,
    head_weights,
    held_dtype,
    is_primary_fp8,
    layer_weights,
    padded_vocabulary,
    summed,
    weight_bytes,
)
from predict.run.offload import DISK, GPU
from predict.run.plan import Batch, Plan
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement
from predict.workload.alike_runs import KeptByRun
from predict.workload.chunks import PIPELINE, pair_on_a_node
from predict.workload.whole_layers import layer_call, plain_embedding, plain_head, plain_layers, plain_tower
from sampling.call import Call, Counted, Phase
from sampling.cells.data_parallel import GradientCell, ShardedAdamW
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.gemm import Gemm, is_scaled, scaling_bytes
from sampling.operators.host import HostAdamW, HostCopy
from sampling.operators.memory_bound import Stream
from sampling.operators.optimizer import AdamW, GradientScale

MOST_KEPT = 256
"""Runs whose ends are kept, some 10 kB each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnd:
    """Calls that a rank makes once per step."""

    blocking_reduction: Calls
    """Reducing gradients over the replicas: the time that it adds to the last backward, measured together with it."""
    shared_weights_reduction: Calls
    """Adding up the gradients of weights that several pipeline ranks hold."""
    gradient_reduction: Calls
    """Gradients over the replicas, which the last backward may hide."""
    parameter_all_gather: Calls
    """Sharded weights back to every replica, which the first forward may hide."""
    optimizer: Calls
    on_host: Blocks = ()
    """Updates of weights whose optimizer state lies on the host, with the copies there and back."""
    exposed_bucket_share: float = 0.0
    """Share of the gradients, and of the gathered weights, in the bucket that nothing hides: the last to be reduced, whose gradients are
    ready as the backward ends, and the first to be gathered, which the forward waits for."""

    def by_purpose(self) -> tuple[Calls, ...]:
        return (
            self.blocking_reduction,
            self.shared_weights_reduction,
            self.gradient_reduction,
            self.parameter_all_gather,
            self.optimizer,
        )

    def all_calls(self) -> Iterator[Counted]:
        yield from chain.from_iterable(self.by_purpose())
        for repeated in self.on_host:
            yield from repeated.block.all_calls()


MakeEnd = Callable[[tuple[Stage, ...], Calls], StepEnd]
"""The end of a step on a rank with these stages; the calls add up gradients that several pipeline ranks hold."""


def step_ends(run: TrainingRun) -> MakeEnd:
    """The ends of a run's step: those of plain torch where layers are priced whole, of mixed precision where operators are."""
    if run.execution.whole_layers:
        return partial(_plain_end, run)
    kept = _sharded.of(_as_ends_see(run))

    def end(stages: tuple[Stage, ...], shared: Calls) -> StepEnd:
        found = kept.of(stages)
        return replace(found, shared_weights_reduction=shared) if shared else found

    return end


def _plain_end(run: TrainingRun, stages: tuple[Stage, ...], shared: Calls) -> StepEnd:
    plain = plain_weights_of(run, stages)
    return StepEnd(
        blocking_reduction=plain_gradient_reduction(run, plain),
        shared_weights_reduction=shared,
        gradient_reduction=(),
        parameter_all_gather=(),
        optimizer=plain_optimizer(run, plain),
    )


@dataclass(frozen=True, eq=False)
class _ShardedEnds:
    """The ends of a run's step in mixed precision by the rank's stages, and by its weights, which follow from them; each is made
    once."""

    run: TrainingRun
    _of_stages: dict[tuple[Stage, ...], StepEnd] = field(default_factory=dict)
    _of_weights: dict[tuple[Weights, Weights, bool], StepEnd] = field(default_factory=dict)

    def of(self, stages: tuple[Stage, ...]) -> StepEnd:
        if stages not in self._of_stages:
            of_layers = trained_layer_weights_of(self.run, stages)
            weights = of_layers + trained_end_weights_of(self.run, stages)
            if any(stage.first for stage in stages):
                weights += trained_in_tower(self.run)
            narrow = trained_layer_weights_of(self.run, stages, wide=False)
            self._of_stages[stages] = self._with(weights, narrow, any(stage.first for stage in stages))
        return self._of_stages[stages]

    def _with(self, weights: Weights, narrow: Weights, embeds: bool) -> StepEnd:
        key = weights, narrow, embeds
        if key not in self._of_weights:
            self._of_weights[key] = StepEnd(
                blocking_reduction=(),
                shared_weights_reduction=(),
                gradient_reduction=sharded_gradient_reduction(self.run, weights),
                parameter_all_gather=parameter_all_gather(self.run, weights, narrow),
                optimizer=(*sharded_optimizer(self.run, weights), *narrow_weights(self.run, narrow)),
                on_host=update_on_host(self.run, weights),
                exposed_bucket_share=_exposed_bucket_share(self.run, weights) if embeds else 0.0,
            )
        return self._of_weights[key]


BUCKET_ELEMENTS, BUCKET_ELEMENTS_A_REPLICA = 40_000_000, 1_000_000
"""Elements of a bucket of gradients at least, and for each replica (Megatron-Core, distributed_data_parallel.py: bucket_size)."""


def _exposed_bucket_share(run: TrainingRun, weights: Weights) -> float:
    """The bucket that the embedding closes, half filled by the layers before it; where layers are sharded one by one, a layer's own
    communication stands for it."""
    if run.plan.zero >= 2 or not weights.total:
        return 0.0
    if run.adapters.are_trained:
        return 0.0
    bucket = max(BUCKET_ELEMENTS, BUCKET_ELEMENTS_A_REPLICA * groups_of(run).replicas.ranks)
    return min(1.0, (embedding_weights(run.model, run.plan).total + bucket / 2) / weights.total)


_sharded = KeptByRun(_ShardedEnds, MOST_KEPT)


def _as_ends_see(run: TrainingRun) -> TrainingRun:
    """The run without what the end of its step in mixed precision does not depend on, from which ends are made."""
    plan = run.plan
    seen = Plan(tp=plan.tp, cp=plan.cp, dp=plan.dp, ep=plan.ep, etp=plan.etp, zero=plan.zero, shard=plan.shard)
    batch = Batch(global_=plan.dp * min(2, run.microbatches), micro=1, seq_len=1)
    return replace(run, name="", plan=seen, batch=batch, order=None, real=None)


def shares_weights(run: TrainingRun, placement: Placement) -> bool:
    """Whether two pipeline ranks may hold the same weights."""
    return run.model.tied or placement.chain_count > 1


def shared_weights_reduction(run: TrainingRun, placement: Placement, rank: int, stages: Sequence[Stage]) -> Calls:
    """Adding up the gradients of weights that this pipeline rank and another hold."""
    calls: Calls = ()
    if run.model.tied and any(stage.first for stage in stages) != any(stage.last for stage in stages):
        # embedding and head are on two ranks: each keeps a copy of the table, as in Megatron
        calls += (_pair_all_reduce(run, _table_bytes(run), 0, run.plan.pp - 1),)
    if placement.chain_count > 1:
        # of two opposite chains, ranks r and p − 1 − r hold copies of the same two stages
        dtype = run.precision if run.execution.whole_layers else run.execution.reduced_dtype
        size = DTYPE_BYTES[dtype] * _elements(run, stages)
        calls += (_pair_all_reduce(run, size, rank, run.plan.pp - 1 - rank),)
    return calls


def _elements(run: TrainingRun, stages: Sequence[Stage]) -> int:
    if run.execution.whole_layers:
        return plain_weights_of(run, stages).elements
    return sharded_weights_of(run, stages).total


def _table_bytes(run: TrainingRun) -> int:
    """The gradient of a tied table on one tensor-parallel rank."""
    dtype, vocab = run.precision, run.model.vocab
    if not run.execution.whole_layers:
        dtype, vocab = run.execution.reduced_dtype, padded_vocabulary(vocab, run.plan.tp)
    return DTYPE_BYTES[dtype] * vocab * run.model.hidden // run.plan.tp


def _pair_all_reduce(run: TrainingRun, size_bytes: int, rank: int, other: int) -> Counted:
    reduce = AllReduce(size_bytes=size_bytes, ranks=2, ranks_per_node=pair_on_a_node(run, rank, other))
    return Message(call=reduce, phase="forward", group=PIPELINE)


# The end of a step in plain torch: DDP reduces the gradients with the last backward, then AdamW updates the weights.


class RankWeights(NamedTuple):
    """The weights that one rank updates, and how many of their elements belong to its layers."""

    elements: int
    tensors: int
    elements_of_layers: int
    layers: int


def plain_weights_of(run: TrainingRun, stages: Sequence[Stage]) -> RankWeights:
    """All that a rank trains; beside adapters embedding and head stay as they are."""
    layers = sum(len(stage.kinds) for stage in stages)
    of_layers = plain_layers(run, [kind for stage in stages for kind in stage.kinds])
    weights, trains_ends = of_layers, not run.adapters.are_trained
    for stage in stages:
        if stage.first:
            weights += plain_tower(run)
        if stage.first and trains_ends:
            weights += plain_embedding(run)
        if stage.last and trains_ends:
            weights += plain_head(run, shares_embedding=stage.shared_table)
    return RankWeights(
        elements=weights.elements,
        tensors=weights.tensors,
        elements_of_layers=of_layers.elements,
        layers=layers,
    )


def plain_gradient_reduction(run: TrainingRun, weights: RankWeights) -> Calls:
    """A measured cell of the rank's layers under DDP, less those layers' own backward, scaled to all weights of the rank; a
    plain all-reduce with tensor parallelism, which no cell covers."""
    dp = run.plan.dp
    if dp == 1:
        return ()
    layer = layer_call(run)
    if layer.tp > 1:
        size = layer.item_bytes * weights.elements
        reduce = AllReduce(size_bytes=size, ranks=dp, ranks_per_node=max(1, dp // _nodes_of_replicas(run)))
        return (Message(call=reduce, phase="forward", group="dp"),)
    phase: Phase = "backward" if run.microbatches == 1 else "backward_accumulate"
    cell = GradientCell(**{**layer.fields(), "group_nodes": _nodes_of_replicas(run)}, layers=weights.layers, dp=dp)
    scale = weights.elements / weights.elements_of_layers
    return (
        Counted(call=cell, phase=phase, count=scale),
        Counted(call=layer, phase=phase, count=-scale * weights.layers),
    )


def _nodes_of_replicas(run: TrainingRun) -> int:
    """Nodes over which the replicas of one rank are spread; they are tp GPUs apart."""
    replicas_per_node = max(1, run.cluster.gpus_per_node // run.plan.tp)
    return -(-run.plan.dp // replicas_per_node)


def plain_optimizer(run: TrainingRun, weights: RankWeights) -> Calls:
    """AdamW, sharded over the replicas with ZeRO; pipelines scale the gradients of their microbatches first."""
    plan, dtype = run.plan, run.precision
    update: Call
    if plan.zero and plan.dp > 1:
        update = ShardedAdamW(
            dtype=dtype,
            parameters=weights.elements,
            tensors=weights.tensors,
            dp=plan.dp,
            group_nodes=_nodes_of_replicas(run),
        )
    else:
        update = AdamW(dtype=dtype, parameters=weights.elements, tensors=weights.tensors, tp=plan.tp)
    calls = [Counted(call=update, phase="step")]
    if plan.pp > 1:
        scale = GradientScale(dtype=dtype, parameters=weights.elements, tensors=weights.tensors)
        calls.insert(0, Counted(call=scale, phase="step"))
    return tuple(calls)


# The end of a step in mixed precision: gradients are reduced over the replicas and clipped, each rank updates its shard, and
# the shards are gathered.

FP32 = DTYPE_BYTES["fp32"]
SHARDED_WEIGHTS = 3
"""ZeRO stage that shards the weights themselves."""
NEWTON_SCHULZ_STEPS = 5
"""Steps of Muon's orthogonalisation (Jordan et al., 2024), each of three products: X·Xᵀ, its square, and their sum times X."""


def sharded_weights_of(run: TrainingRun, stages: Sequence[Stage]) -> Weights:
    """All that a rank holds."""
    return layer_weights_of(run, stages) + end_weights_of(run, stages)


def layer_weights_of(run: TrainingRun, stages: Sequence[Stage]) -> Weights:
    counts = [each for stage in stages for each in stage.counts.items()]
    return summed(layer_weights(run.model, run.plan, kind) * count for kind, count in counts)


def trained_layer_weights_of(run: TrainingRun, stages: Sequence[Stage], *, wide: bool = True) -> Weights:
    """The layers' trained weights, with or without those of layers whose products stay wide."""
    counts = [each for stage in stages for each in stage.counts.items() if wide or not each[0].wide]
    return summed(trained_in_layer(run, kind) * count for kind, count in counts)


def end_weights_of(run: TrainingRun, stages: Sequence[Stage]) -> Weights:
    """Those of embedding and head."""
    return summed(chain.from_iterable(_ends(run, stage) for stage in stages))


def trained_end_weights_of(run: TrainingRun, stages: Sequence[Stage]) -> Weights:
    """Those of embedding and head that are trained."""
    ends = [_ends(run, stage) for stage in stages]
    return summed(
        trained_in_embedding(run, embedding) + trained_in_head(run, head)
        if stage.last
        else trained_in_embedding(run, embedding)
        for stage, (embedding, head) in zip(stages, ends, strict=True)
    )


def _ends(run: TrainingRun, stage: Stage) -> tuple[Weights, Weights]:
    """Embedding and head of a stage, as far as it has them."""
    model, plan = run.model, run.plan
    return (
        embedding_weights(model, plan) if stage.first else Weights(),
        head_weights(model, plan, shares_embedding=stage.shared_table) if stage.last else Weights(),
    )


def sharded_gradient_reduction(run: TrainingRun, weights: Weights) -> Calls:
    """Gradients over the replicas: an all-reduce, or a reduce-scatter where the optimizer is sharded. FSDP reduces layer
    by layer in the backward itself, as ZeRO-2 does."""
    if run.plan.zero >= 2:
        return ()
    size, groups = DTYPE_BYTES[run.execution.reduced_dtype], groups_of(run)
    if run.plan.zero == 0 or run.execution.sharded_reduction == "all_reduce":
        return (
            *_casts(run, weights),
            *groups.replicas.all_reduce(size * weights.dense),
            *groups.expert_replicas.all_reduce(size * weights.experts),
        )
    return (
        *_casts(run, weights),
        *groups.shard.reduce_scatter(size * weights.dense),
        *groups.copies.all_reduce(size * weights.dense / groups.shard.ranks),
        *groups.expert_shard.reduce_scatter(size * weights.experts),
        *groups.expert_copies.all_reduce(size * weights.experts / groups.expert_shard.ranks),
    )


def _casts(run: TrainingRun, weights: Weights) -> Calls:
    """Copies of the gradients to the dtype in which they are reduced, and back; none where it is the same, or nothing is reduced."""
    execution = run.execution
    kept, sent = DTYPE_BYTES[execution.gradient_dtype], DTYPE_BYTES[execution.reduced_dtype]
    if execution.reduced_dtype == execution.gradient_dtype or run.plan.dp * run.plan.cp == 1:
        return ()
    call = Stream(dtype=execution.gradient_dtype, size_bytes=max(1, 2 * (kept + sent) * weights.total))
    return (Counted(call=call, phase="forward"),)


def parameter_all_gather(run: TrainingRun, weights: Weights, narrow: Weights) -> Calls:
    """Sharded weights, updated, back to every replica; those of narrow products in fp8 where they are kept so."""
    if run.plan.zero in (0, 3):
        return ()
    size, groups = weight_bytes(run), groups_of(run)
    saved = size - DTYPE_BYTES["fp8"] if is_primary_fp8(run) and not run.adapters.are_trained else 0
    return (
        *groups.shard.all_gather(size * weights.dense - saved * narrow.dense),
        *groups.expert_shard.all_gather(size * weights.experts - saved * narrow.experts),
    )


def sharded_optimizer(run: TrainingRun, weights: Weights) -> Calls:
    """Clipping, the optimizer on this rank's shard, and what mixed precision adds to it."""
    groups, execution = groups_of(run), run.execution
    own = _shard(run, weights, groups)
    if not own:
        return ()
    updated = own - _on_host(run, own)
    # gradients that lie on the host are clipped, unscaled and set to 0 there
    left = updated if run.sheds_gradients else own
    passes = 0.0
    if execution.clip_gradients:
        passes += FP32 * left / own  # the squares are read from the gradients
    if execution.loss_scaling:
        passes += 2 * FP32 * left / own
    if execution.master_weights and weight_bytes(run) < FP32:
        passes += (FP32 + weight_bytes(run)) * updated / own  # their copy to train with
    if run.microbatches > 1:
        passes += (
            DTYPE_BYTES[execution.gradient_dtype] * (weights.total if run.plan.zero < 2 else left) / own
        )  # set to 0
    dtype = "fp32" if execution.master_weights else held_dtype(run)
    calls: Calls = (Counted(call=Stream(dtype=dtype, size_bytes=max(1, round(passes * own))), phase="forward"),)
    if updated:
        calls += (Counted(call=AdamW(dtype=dtype, parameters=updated, tensors=1, tp=1), phase="step"),)
    if execution.optimizer == "muon":
        calls += _orthogonalisation(run, own)
    return calls


def update_on_host(run: TrainingRun, weights: Weights) -> Blocks:
    """The update of the share of weights whose state lies on the host: fp32 gradients there, the update, and the weights back. Disks give
    that state, and take it again, in between. Where nothing overlaps, one comes after the other."""
    offload = run.offload
    parameters = _on_host(run, _shard(run, weights, groups_of(run)))
    if not parameters:
        return ()
    dtype = held_dtype(run)
    to_gpu = 0 if offload.shards_on != GPU else weight_bytes(run)
    sent = DTYPE_BYTES[run.execution.gradient_dtype]
    # gradients that went as they were reduced are there already
    moved = [(0 if run.sheds_gradients else sent, True, False), (to_gpu, False, False)]
    if offload.optimizer_on == DISK:
        moved += [(3 * FP32, False, True), (3 * FP32, True, True)]
    copies = tuple(
        Counted(call=HostCopy(dtype=dtype, size_bytes=size * parameters, to_host=to_host, disk=disk), phase="forward")
        for size, to_host, disk in moved
        if size
    )
    update = (Counted(call=HostAdamW(dtype="fp32", parameters=parameters), phase="step"),)
    beside = OverlappedCommunication(
        heading=OFFLOAD, communication=copies, work=update, share=float(offload.overlap_optimizer)
    )
    return single(Block(calls=update, overlapped=(beside,) if copies else ()))


def _on_host(run: TrainingRun, own: int) -> int:
    """The elements that a rank updates whose state lies on the host."""
    return round(run.offload.optimizer_share * own)


def narrow_weights(run: TrainingRun, narrow: Weights) -> Calls:
    """Bringing the weights of narrow products, whole on every rank, to fewer bits by rows and by columns, once a step, where they are
    gathered in 16 bits and stay over the microbatches (Transformer Engine, module/base.py, get_weight_workspace)."""
    stays = run.plan.zero < SHARDED_WEIGHTS and is_scaled(run.precision)
    if not stays or is_primary_fp8(run) or run.adapters.are_trained or not narrow.total:
        return ()
    size = narrow.total * scaling_bytes(run.precision)
    return (Counted(call=Stream(dtype=held_dtype(run), size_bytes=max(1, round(size))), phase="forward"),)


def _shard(run: TrainingRun, weights: Weights, groups: Groups) -> int:
    """Elements whose optimizer state the rank keeps."""
    if run.plan.zero == 0 or not weights.total:
        return weights.total
    return max(1, _share(weights.dense, groups.shard) + _share(weights.experts, groups.expert_shard))


def _share(elements: int, group: RankGroup) -> int:
    return -(-elements // group.ranks)


def _orthogonalisation(run: TrainingRun, own: int) -> Calls:
    """Newton-Schulz steps on as many matrices [hidden, hidden] as the shard has elements."""
    width = run.model.hidden
    product = Gemm(dtype=held_dtype(run), m=width, n=width, k=width)
    return (Counted(call=product, phase="forward", count=3 * NEWTON_SCHULZ_STEPS * own / width**2),)
