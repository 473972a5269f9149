"""Parallel groups and the nodes they span: ranks in Megatron's order tp, cp, dp, pp, experts folded into a stage's ranks."""

from dataclasses import dataclass
from functools import lru_cache

from predict.rank.blocks import Message
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.collectives.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    ReduceScatter,
    SendRecv,
    TokenExchange,
)

KEPT = 256
"""Plans whose groups are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankGroup:
    """`ranks` of a group, `ranks_per_node` of them on each node that it touches."""

    name: str
    ranks: int
    ranks_per_node: int

    def collective(self, kind: type[Collective], size_bytes: float, count: float = 1.0) -> tuple[Message, ...]:
        """The collective on this group; nothing for a group of one, or no bytes."""
        if self.ranks == 1 or size_bytes < 1:
            return ()
        call = kind(size_bytes=round(size_bytes), ranks=self.ranks, ranks_per_node=self.ranks_per_node)
        return (Message(call=call, phase="forward", count=count, group=self.name),)

    def all_reduce(self, size_bytes: float) -> tuple[Message, ...]:
        return self.collective(AllReduce, size_bytes)

    def all_gather(self, size_bytes: float) -> tuple[Message, ...]:
        return self.collective(AllGather, size_bytes)

    def reduce_scatter(self, size_bytes: float) -> tuple[Message, ...]:
        return self.collective(ReduceScatter, size_bytes)

    def all_to_all(self, size_bytes: float, count: float = 1.0) -> tuple[Message, ...]:
        return self.collective(AllToAll, size_bytes, count)

    def token_exchange(self, inside_bytes: float, away_bytes: float, library: str) -> tuple[Message, ...]:
        """The exchange of a mixture's tokens by copies per node; nothing for a group of one."""
        if self.ranks == 1:
            return ()
        call = TokenExchange(
            size_bytes=round(inside_bytes),
            away_bytes=round(away_bytes),
            ranks=self.ranks,
            ranks_per_node=self.ranks_per_node,
            library=library,
        )
        return (Message(call=call, phase="forward", group=self.name),)

    def round_of_sends(self, size_bytes: float) -> tuple[Message, ...]:
        """A ring exchange: every rank passes on what it received, ranks − 1 times."""
        if self.ranks == 1:
            return ()
        pair = RankGroup(name=self.name, ranks=2, ranks_per_node=2 if self.ranks <= self.ranks_per_node else 1)
        return pair.collective(SendRecv, size_bytes, self.ranks - 1)


def group_of(name: str, ranks: int, stride: int, gpus_per_node: int) -> RankGroup:
    """A group whose members are `stride` ranks apart."""
    return RankGroup(name=name, ranks=ranks, ranks_per_node=max(1, min(ranks, gpus_per_node // stride)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The groups that a rank of a run is in.

    - `replicas` hold the same weights outside of experts (dp · cp), `expert_replicas` the same experts;
    - `shard` and `expert_shard` are the replicas that one copy of a sharded state spreads over;
    - `copies` and `expert_copies` hold the same shard: experts have as many copies as the rest, where they have as many replicas.
    """

    tp: RankGroup
    cp: RankGroup
    ep: RankGroup
    etp: RankGroup
    replicas: RankGroup
    expert_replicas: RankGroup
    shard: RankGroup
    expert_shard: RankGroup
    copies: RankGroup
    expert_copies: RankGroup


def groups_of(run: TrainingRun) -> Groups:
    """The groups of a run's ranks: of a part of a run, the replicas and shards of the whole."""
    return _groups(run.plan, run.spread or run.plan, run.cluster.gpus_per_node)


@lru_cache(maxsize=KEPT)
def _groups(plan: Plan, spread: Plan, per_node: int) -> Groups:
    replicas = spread.cp * spread.dp
    stage_ranks = spread.tp * replicas
    experts_apart = spread.etp * spread.ep
    expert_replicas = max(1, stage_ranks // experts_apart)
    shard = spread.shard or replicas
    expert_shard = max(1, expert_replicas // (replicas // shard))
    return Groups(
        tp=group_of("tp", plan.tp, 1, per_node),
        cp=group_of("cp", plan.cp, plan.tp, per_node),
        ep=group_of("ep", plan.ep, plan.etp, per_node),
        etp=group_of("etp", plan.etp, 1, per_node),
        replicas=group_of("dp", replicas, spread.tp, per_node),
        expert_replicas=group_of("expert dp", expert_replicas, experts_apart, per_node),
        shard=group_of("shard", shard, spread.tp, per_node),
        expert_shard=group_of("expert shard", expert_shard, experts_apart, per_node),
        copies=group_of("copies", replicas // shard, spread.tp * shard, per_node),
        expert_copies=group_of(
            "expert copies", expert_replicas // expert_shard, experts_apart * expert_shard, per_node
        ),
    )
