"""Exchanges of tensor parallelism before and after the products that it splits.

Column-parallel products (query, key and value; the MLP's first) take tokens that every rank needs whole; row-parallel ones leave
partial sums (Shoeybi et al., arXiv 1909.08053). Sequence parallelism gathers the input once more in backward (Korthikanti et al.,
arXiv 2205.05198).
"""

from predict.rank.blocks import Calls, Message, OverlappedCommunication
from predict.rank.module import Exchange
from predict.rank.share import RankShare, Weights
from predict.run.offload import DISK, GPU
from sampling.call import Counted
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.host import HostCopy
from sampling.operators.memory_bound import Stream

TP = "tp"
BACKWARD_SHARE = 0.5
"""Share of a product's backward that computes the weight's gradient and hides the exchange of the input's gradient."""
PIPELINED_MOST = 0.55
"""Largest hidden share of a collective that moves piece by piece during its product: published runs show 35-80 % (torchtitan
with and without asynchronous tensor parallelism on H100)."""


def entering(rank: RankShare, width: int = 0, *, readers: int = 1, beside: int = 0) -> tuple[Exchange, ...]:
    """The exchange before `readers` column-parallel products of the same tokens, `width` wide (default: the hidden width): the
    microbatch's own, or the `beside` tokens of another sequence, which every rank has whole.

    Without sequence parallelism each of them reduces its own gradient of the tokens; with it they share the gathered tokens.
    """
    group, size = rank.groups.tp, rank.item_bytes * (beside or rank.tokens) * (width or rank.model.hidden)
    if group.ranks == 1:
        return ()
    is_scattered = rank.plan.sp and not beside
    again = group.all_gather(size) if rank.execution.gather_again else ()
    return (
        Exchange(
            heading=TP,
            forward=group.all_gather(size) if is_scattered else (),
            backward=(*group.reduce_scatter(size), *again) if is_scattered else group.all_reduce(size) * readers,
            forward_share=_share(rank, "pipelined"),
            backward_share=_share(rank, "pipelined", "backward"),
            most=_most(rank),
        ),
    )


def leaving(rank: RankShare) -> tuple[Exchange, ...]:
    """The exchange after a row-parallel product."""
    group, size = rank.groups.tp, rank.hidden_bytes
    if group.ranks == 1:
        return ()
    return (
        Exchange(
            heading=TP,
            forward=group.reduce_scatter(size) if rank.plan.sp else group.all_reduce(size),
            backward=group.all_gather(size) if rank.plan.sp else (),
            forward_share=_share(rank, "pipelined"),
            backward_share=_share(rank, "pipelined"),
            most=_most(rank),
        ),
    )


def _share(rank: RankShare, *kinds: str) -> float:
    overlap = rank.execution.overlap_tp
    if overlap not in kinds:
        return 0.0
    return 1.0 if overlap == "pipelined" else BACKWARD_SHARE


def _most(rank: RankShare) -> float:
    return PIPELINED_MOST if rank.execution.overlap_tp == "pipelined" else 1.0


# Exchanges of context parallelism, by which every query meets every key.
#
# `ring` passes keys and values round while attention works on those that have arrived (Liu et al., arXiv 2310.01889); `all_to_all`
# turns shares of the sequence into shares of the heads and back (Jacobs et al., arXiv 2309.14509); `all_gather` collects
# the keys and values first (Llama team, arXiv 2407.21783).


def exchange_of_keys(rank: RankShare, query_width: int, key_value_width: int) -> tuple[Exchange, ...]:
    """Exchanges of a mixer whose queries and outputs are `query_width` wide on this rank, and whose keys and values are
    `key_value_width` wide together."""
    group = rank.groups.cp
    of_width = (DTYPE_BYTES["fp8"] if rank.execution.fp8_attention else rank.item_bytes) * rank.tokens
    keys, queries = of_width * key_value_width, of_width * query_width
    if group.ranks == 1:
        return ()
    if rank.plan.cp_method == "all_to_all":
        both_ways = (*group.all_to_all(keys + queries), *group.all_to_all(queries))
        return (Exchange(heading="cp", forward=both_ways, backward=both_ways),)
    if rank.plan.cp_method == "all_gather":
        whole = keys * group.ranks
        gathered = group.all_gather(whole)
        return (Exchange(heading="cp", forward=gathered, backward=(*gathered, *group.reduce_scatter(whole))),)
    return (
        Exchange(
            heading="cp",
            forward=group.round_of_sends(keys),
            # keys and values go round again, and their gradients after them
            backward=group.round_of_sends(2 * keys),
            forward_share=1.0,
            backward_share=1.0,
        ),
    )


# Activations that wait for their backward on the host.


def leaving_for_host(rank: RankShare, size_bytes: float, work: Calls) -> tuple[OverlappedCommunication, ...]:
    """Copies of the tensors that a forward keeps, on their way to the host while the GPU computes."""
    return _with_host(rank, host_copy(rank, size_bytes, to_host=True), work)


def back_from_host(rank: RankShare, size_bytes: float, work: Calls) -> tuple[OverlappedCommunication, ...]:
    """The same, on its way back, which the backward before it hides."""
    return _with_host(rank, host_copy(rank, size_bytes, to_host=False), work)


def _with_host(rank: RankShare, copies: Calls, work: Calls) -> tuple[OverlappedCommunication, ...]:
    if not copies:
        return ()
    share = float(rank.run.offload.overlap_activations)
    return (OverlappedCommunication(heading=OFFLOAD, communication=copies, work=work, share=share, ahead=True),)


# Communication of weights that are sharded layer by layer (FSDP, and ZeRO-2 for gradients), and the copies that it takes.

FSDP = "fsdp"
OFFLOAD = "offload"


def sharded_forward(
    rank: RankShare, gathered: Weights, trained: Weights, work: Calls
) -> tuple[OverlappedCommunication, ...]:
    """A layer's weights, of so many bytes, gathered before its forward."""
    return (
        *_beside(work, (_gather(rank, gathered), rank.execution.overlap_parameters)),
        *_passes(rank, gathered, _copies_of_gathered(rank), "gathered weights"),
    )


def sharded_backward(
    rank: RankShare, gathered: Weights, trained: Weights, work: Calls
) -> tuple[OverlappedCommunication, ...]:
    """The weights, gathered again, and the gradients, summed and scattered: one after the other on the same links."""
    return (
        *_beside(
            work,
            (_gather(rank, gathered), rank.execution.overlap_parameters),
            (_scatter(rank, trained), rank.execution.overlap_gradients),
        ),
        *_passes(rank, gathered, _copies_of_gathered(rank), "gathered weights"),
        *_passes(rank, trained, _widened_bytes(rank), "widened gradients"),
    )


def sharded_gradients(
    rank: RankShare, gathered: Weights, trained: Weights, work: Calls
) -> tuple[OverlappedCommunication, ...]:
    """The gradients alone, where their half of the backward runs by itself."""
    return (
        *_beside(work, (_scatter(rank, trained), rank.execution.overlap_gradients)),
        *_passes(rank, trained, _widened_bytes(rank), "widened gradients"),
    )


def _beside(work: Calls, *streams: tuple[Calls, bool]) -> tuple[OverlappedCommunication, ...]:
    """Communication that may overlap with the work, and communication that may not, each as one piece."""
    pieces = (
        (float(hides), tuple(call for calls, own in streams if own == hides for call in calls))
        for hides in (True, False)
    )
    return tuple(
        OverlappedCommunication(heading=FSDP, communication=calls, work=work, share=share, ahead=True)
        for share, calls in pieces
        if calls
    )


def _passes(rank: RankShare, whole: Weights, times: int, what: str) -> tuple[OverlappedCommunication, ...]:
    """A pass over whole weights or gradients in device memory, `times` bytes for each of their elements or bytes; nothing hides it, and
    the name of its group says `what` is copied."""
    size = times * whole.total
    if not size or rank.groups.shard.ranks == 1:
        return ()
    call = Message(call=Stream(dtype=rank.dtype, size_bytes=size), phase="forward", group=what)
    return (OverlappedCommunication(heading=FSDP, communication=(call,)),)


def _copies_of_gathered(rank: RankShare) -> int:
    """Times that a gathered layer is read or written to be taken apart into its weights."""
    return 2 if rank.plan.zero == 3 and rank.execution.copy_gathered else 0


def _widened_bytes(rank: RankShare) -> int:
    """Bytes a weight that are read and written to bring its gradient into the wider dtype in which gradients are reduced."""
    sent = DTYPE_BYTES[rank.execution.reduced_dtype]
    widens = rank.plan.zero >= 2 and sent > rank.item_bytes and not rank.execution.fuse_gradients
    return rank.item_bytes + sent if widens else 0


def _gather(rank: RankShare, gathered: Weights) -> Calls:
    """FSDP collects a layer's weights before its forward, and again before its backward (Zhao et al., arXiv 2304.11277)."""
    if rank.plan.zero < 3:
        return ()
    groups, offload = rank.groups, rank.run.offload
    from_host: Calls = ()
    if offload.shards_on != GPU:
        from_host = host_copy(rank, _of_shard(rank, gathered), to_host=False, disk=offload.shards_on == DISK)
    return (
        *from_host,
        *groups.shard.all_gather(gathered.dense),
        *groups.expert_shard.all_gather(gathered.experts),
    )


def _of_shard(rank: RankShare, whole: Weights) -> float:
    """A rank's part of what is sharded."""
    return whole.dense / rank.groups.shard.ranks + whole.experts / rank.groups.expert_shard.ranks


def host_copy(rank: RankShare, size_bytes: float, *, to_host: bool, disk: bool = False) -> Calls:
    """A copy to the host or back; none of less than a byte."""
    if size_bytes < 1:
        return ()
    call = HostCopy(dtype=rank.dtype, size_bytes=round(size_bytes), to_host=to_host, disk=disk)
    return (Counted(call=call, phase="forward"),)


def _scatter(rank: RankShare, weights: Weights) -> Calls:
    """Sums and scatters a layer's gradients after every backward under ZeRO-2 and 3, since no rank has room for all of them; then
    sums the copies of each shard."""
    if rank.plan.zero < 2:
        return ()
    groups, size = rank.groups, DTYPE_BYTES[rank.execution.reduced_dtype]
    on_host = rank.run.offload.optimizer_share * rank.run.sheds_gradients
    return (
        *groups.shard.reduce_scatter(size * weights.dense),
        *groups.expert_shard.reduce_scatter(size * weights.experts),
        *groups.copies.all_reduce(size * weights.dense / groups.shard.ranks),
        *groups.expert_copies.all_reduce(size * weights.experts / groups.expert_shard.ranks),
        *host_copy(rank, on_host * size * _of_shard(rank, weights), to_host=True),
    )
