"""Communication of weights that are sharded layer by layer (FSDP, and ZeRO-2 for gradients), and the copies that it takes."""

from __future__ import annotations

from predict.rank.blocks import Calls, OverlappedCommunication
from predict.rank.share import RankShare
from predict.rank.weights import Weights
from sampling.call import Counted
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.streaming import Stream

FSDP = "fsdp"


def sharded_forward(rank: RankShare, weights: Weights, work: Calls) -> tuple[OverlappedCommunication, ...]:
    """A layer's weights, gathered before its forward."""
    return (
        *_beside(work, (_gather(rank, weights), rank.execution.overlap_parameters)),
        *_passes(rank, weights, _gathered_bytes(rank)),
    )


def sharded_backward(rank: RankShare, weights: Weights, work: Calls) -> tuple[OverlappedCommunication, ...]:
    """The weights, gathered again, and the gradients, summed and scattered: one after the other on the same links."""
    return (
        *_beside(
            work,
            (_gather(rank, weights), rank.execution.overlap_parameters),
            (_scatter(rank, weights), rank.execution.overlap_gradients),
        ),
        *_passes(rank, weights, _gathered_bytes(rank) + _widened_bytes(rank)),
    )


def sharded_gradients(rank: RankShare, weights: Weights, work: Calls) -> tuple[OverlappedCommunication, ...]:
    """The gradients alone, where their half of the backward runs by itself."""
    return (
        *_beside(work, (_scatter(rank, weights), rank.execution.overlap_gradients)),
        *_passes(rank, weights, _widened_bytes(rank)),
    )


def _beside(work: Calls, *streams: tuple[Calls, bool]) -> tuple[OverlappedCommunication, ...]:
    """Communication that may run beside the work, and that which may not, each as one piece."""
    pieces = (
        (float(hides), tuple(call for calls, own in streams if own == hides for call in calls))
        for hides in (True, False)
    )
    return tuple(
        OverlappedCommunication(heading=FSDP, communication=calls, work=work, share=share)
        for share, calls in pieces
        if calls
    )


def _passes(rank: RankShare, weights: Weights, bytes_a_weight: int) -> tuple[OverlappedCommunication, ...]:
    """A pass over whole weights or gradients in device memory; nothing hides it."""
    size = bytes_a_weight * weights.total
    if not size or rank.groups.shard.ranks == 1:
        return ()
    call = Counted(call=Stream(dtype=rank.dtype, size_bytes=size), phase="forward")
    return (OverlappedCommunication(heading=FSDP, communication=(call,)),)


def _gathered_bytes(rank: RankShare) -> int:
    """Bytes a weight that are read and written to take a gathered layer apart into its weights."""
    copies = rank.plan.zero == 3 and rank.execution.copy_gathered
    return 2 * rank.item_bytes if copies else 0


def _widened_bytes(rank: RankShare) -> int:
    """Bytes a weight that are read and written to bring its gradient into the wider dtype in which gradients are reduced."""
    sent = DTYPE_BYTES[rank.execution.reduced_dtype]
    widens = rank.plan.zero >= 2 and sent > rank.item_bytes and not rank.execution.fuse_gradients
    return rank.item_bytes + sent if widens else 0


def _gather(rank: RankShare, weights: Weights) -> Calls:
    """FSDP collects a layer's weights before its forward, and again before its backward (Zhao et al., arXiv 2304.11277)."""
    if rank.plan.zero < 3:
        return ()
    groups, size = rank.groups, rank.item_bytes
    return (
        *groups.shard.all_gather(size * weights.dense),
        *groups.expert_shard.all_gather(size * weights.experts),
    )


def _scatter(rank: RankShare, weights: Weights) -> Calls:
    """Sums and scatters a layer's gradients after every backward under ZeRO-2 and 3, since no rank has room for all of them; then
    sums the copies of each shard."""
    if rank.plan.zero < 2:
        return ()
    groups, size = rank.groups, DTYPE_BYTES[rank.execution.reduced_dtype]
    return (
        *groups.shard.reduce_scatter(size * weights.dense),
        *groups.expert_shard.reduce_scatter(size * weights.experts),
        *groups.copies.all_reduce(size * weights.dense / groups.shard.ranks),
        *groups.expert_copies.all_reduce(size * weights.experts / groups.expert_shard.ranks),
    )
