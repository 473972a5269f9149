"""Sends between pipeline ranks, and whether a pair of ranks shares a node."""

from __future__ import annotations

from functools import lru_cache

from predict.rank.blocks import Calls, Message
from predict.rank.groups import group_of
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Placement
from sampling.collectives.kinds import SendRecv

KEPT = 128
"""Placements of which it is kept who sends to whom, and messages that are."""
PIPELINE = "pp"
"""Name of the group of pipeline ranks, two of which exchange a message."""


def activation_bytes(run: TrainingRun) -> int:
    """Bytes of one rank's share of the residual stream."""
    rank = RankShare(run=run)
    return rank.item_bytes * rank.rows * run.model.hidden


def sends_of_ranks(run: TrainingRun, placement: Placement) -> list[tuple[Calls, ...]]:
    """The sends of results to the next stage, by rank and chunk; () where that is on the same rank. Equal ones are one object."""
    pairs = _pairs(placement, _block(run), run.cluster.gpus_per_node)
    calls = {on_a_node: _send_calls(run, on_a_node) if on_a_node else () for on_a_node in set().union(*pairs)}
    return [tuple([calls[on_a_node] for on_a_node in of_rank]) for of_rank in pairs]


@lru_cache(maxsize=KEPT)
def _pairs(placement: Placement, block: int, per_node: int) -> tuple[tuple[int, ...], ...]:
    """Ranks per node of the pair over which each chunk sends, by rank and chunk; 0 where it sends to no other rank."""
    holders = placement.holders()

    def pair(rank: int, chain: int, stage: int) -> int:
        holder = holders.get((chain, stage + 1))
        return 0 if holder is None or holder[0] == rank else _on_a_node(rank, holder[0], block, per_node)

    return tuple(
        tuple(pair(rank, chain, stage) for chain, stage in zip(placement.chains, stages, strict=True))
        for rank, stages in enumerate(placement.stages)
    )


def _send_calls(run: TrainingRun, on_a_node: int) -> Calls:
    """The send of an activation to a rank with which `on_a_node` of the pair are on one node."""
    whole = run.plan.tp == 1 or run.plan.sp or run.execution.whole_layers or not run.execution.split_p2p
    return _send(activation_bytes(run), 1 if whole else run.plan.tp, on_a_node, run.cluster.gpus_per_node)


@lru_cache(maxsize=KEPT)
def _send(size_bytes: int, parts: int, on_a_node: int, per_node: int) -> Calls:
    """The send by `parts` tensor-parallel ranks, each of which sends its part, and those of the next stage gather them."""
    part = SendRecv(size_bytes=size_bytes // parts, ranks=2, ranks_per_node=on_a_node)
    gathered = group_of("tp", parts, 1, per_node).all_gather(size_bytes)
    return (Message(call=part, phase="forward", group=PIPELINE), *gathered)


def pair_on_a_node(run: TrainingRun, rank: int, other: int) -> int:
    """Ranks per node, 2 or 1, of a pair of pipeline ranks. Each is a block of tp · cp · dp GPUs, one block after the other, and
    the pair is as slow as those of its GPUs that are furthest apart."""
    return _on_a_node(rank, other, _block(run), run.cluster.gpus_per_node)


def _block(run: TrainingRun) -> int:
    """GPUs of a pipeline rank."""
    return run.plan.tp * run.plan.cp * run.plan.dp


def _on_a_node(rank: int, other: int, block: int, per_node: int) -> int:
    apart = any((rank * block + i) // per_node != (other * block + i) // per_node for i in range(block))
    return 1 if apart else 2
