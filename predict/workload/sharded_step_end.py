"""The end of a step in mixed precision: gradients are reduced over the replicas and clipped, each rank updates its shard, and
the shards are gathered."""

from __future__ import annotations

from collections.abc import Sequence

from predict.rank.blocks import Calls
from predict.rank.groups import Groups, RankGroup, groups_of
from predict.rank.share import Weights, embedding_weights, head_weights, held_dtype, layer_weights, summed, weight_bytes
from predict.run.stages import Stage
from predict.run.training_run import TrainingRun
from sampling.call import Counted
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.operators.optimizer import AdamW

FP32 = DTYPE_BYTES["fp32"]
NEWTON_SCHULZ_STEPS = 5
"""Steps of Muon's orthogonalisation (Jordan et al., 2024), each of three products: X·Xᵀ, its square, and their sum times X."""


def weights_of(run: TrainingRun, stages: Sequence[Stage]) -> Weights:
    """All that a rank holds."""
    counts = [each for stage in stages for each in stage.counts.items()]
    weights = summed(layer_weights(run.model, run.plan, kind) * count for kind, count in counts)
    for stage in stages:
        if stage.first:
            weights += embedding_weights(run.model, run.plan)
        if stage.last:
            weights += head_weights(run.model, run.plan, shares_embedding=stage.shared_table)
    return weights


def gradient_reduction(run: TrainingRun, weights: Weights) -> Calls:
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


def parameter_all_gather(run: TrainingRun, weights: Weights) -> Calls:
    """Sharded weights, updated, back to every replica."""
    if run.plan.zero in (0, 3):
        return ()
    size, groups = weight_bytes(run), groups_of(run)
    return (*groups.shard.all_gather(size * weights.dense), *groups.expert_shard.all_gather(size * weights.experts))


def optimizer(run: TrainingRun, weights: Weights) -> Calls:
    """Clipping, the optimizer on this rank's shard, and what mixed precision adds to it."""
    groups, execution = groups_of(run), run.execution
    own = _shard(run, weights, groups)
    passes = 0.0
    if execution.clip_gradients:
        passes += FP32  # the squares are read from the gradients
    if execution.loss_scaling:
        passes += 2 * FP32
    if execution.master_weights and weight_bytes(run) < FP32:
        passes += FP32 + weight_bytes(run)  # their copy to train with
    if run.microbatches > 1:
        passes += (
            DTYPE_BYTES[execution.gradient_dtype] * (weights.total if run.plan.zero < 2 else own) / own
        )  # set to 0
    dtype = "fp32" if execution.master_weights else held_dtype(run)
    update = AdamW(dtype=dtype, parameters=own, tensors=1, tp=1)
    calls: Calls = (
        Counted(call=Stream(dtype=dtype, size_bytes=max(1, round(passes * own))), phase="forward"),
        Counted(call=update, phase="step"),
    )
    if execution.optimizer == "muon":
        calls += _orthogonalisation(run, own)
    return calls


def _shard(run: TrainingRun, weights: Weights, groups: Groups) -> int:
    """Elements whose optimizer state the rank keeps."""
    if run.plan.zero == 0:
        return weights.total
    return max(1, _share(weights.dense, groups.shard) + _share(weights.experts, groups.expert_shard))


def _share(elements: int, group: RankGroup) -> int:
    return -(-elements // group.ranks)


def _orthogonalisation(run: TrainingRun, own: int) -> Calls:
    """Newton-Schulz steps on as many matrices [hidden, hidden] as the shard has elements."""
    width = run.model.hidden
    product = Gemm(dtype=held_dtype(run), m=width, n=width, k=width)
    return (Counted(call=product, phase="forward", count=3 * NEWTON_SCHULZ_STEPS * own / width**2),)
