"""The nodes of one GPU's execution trace: compute with its time, messages with their bytes and groups, and what waits for what.

Compute between two messages is one node. A message that compute does not wait for depends on what came before the work beside it,
and is joined at the end of the action. A pipeline rank's actions follow each other; a receive comes before the action that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from predict.report.traces.chakra.places import Place
from predict.report.traces.chakra.schema import COLLECTIVES, NODE_TYPES, messages
from predict.report.traces.pieces import COMPUTE, Piece, Pieces
from predict.schedules.engine.order import Action
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket
from predict.step.priced_rank import BUCKETS
from sampling.collectives.kinds import Collective, SendRecv

HIDDEN = 0.999
"""Share of a message's own time from which on compute waits for all of it."""
Groups = dict[tuple[int, ...], int]
"""Members of a group → its number in the file of groups."""


@dataclass(slots=True)
class GpuTrace:
    """The nodes of a GPU so far. `last` are the nodes that the next one waits for."""

    place: Place
    groups: Groups
    nodes: list[Any] = field(default_factory=list)
    last: tuple[int, ...] = ()

    def compute(self, name: str, time_us: float) -> None:
        if round(time_us) > 0:
            self._wait_for(self._add(name, "COMP_NODE", time_us))

    def collective(self, piece: Piece, after: tuple[int, ...] | None = None) -> int | None:
        """A message of a block; with `after`, beside what follows those nodes. Its number where nothing waits for it yet."""
        call, item = piece.item.call, piece.item
        assert isinstance(call, Collective)
        members = self.place.group(item.group, call.ranks)
        number = self.groups.setdefault(members, len(self.groups) + 1)
        told = {"comm_type": ("int64_val", COLLECTIVES[call.NAME]), "pg_name": ("string_val", str(number))}
        size = {"comm_size": ("int64_val", round(call.size_bytes * item.count))}
        node = self._add(call.NAME, "COMM_COLL_NODE", piece.time_us, told | size, after=after)
        if after is None:
            self._wait_for(node)
            return None
        return node

    def message(self, kind: str, name: str, size_bytes: float, other: int, tag: int) -> int:
        """A send to another GPU, or a receive from one, after what was last."""
        here, sends = self.place.gpu, kind == "COMM_SEND_NODE"
        told = {
            "comm_size": ("int64_val", round(size_bytes)),
            "comm_src": ("int32_val", here if sends else other),
            "comm_dst": ("int32_val", other if sends else here),
            "comm_tag": ("int32_val", tag),
        }
        return self._add(name, kind, 0.0, told)

    def join(self, *nodes: int | None) -> None:
        """Make all that follows wait for these nodes too."""
        self.last = tuple(dict.fromkeys([*self.last, *(node for node in nodes if node is not None)]))

    def _wait_for(self, node: int) -> None:
        self.last = (node,)

    def _add(
        self,
        name: str,
        kind: str,
        time_us: float,
        told: dict[str, tuple[str, Any]] | None = None,
        after: tuple[int, ...] | None = None,
    ) -> int:
        kinds, number = messages(), len(self.nodes)
        attributes = {"is_cpu_op": ("bool_val", False), **(told or {})}
        self.nodes.append(
            kinds["Node"](
                id=number,
                name=name,
                type=NODE_TYPES[kind],
                duration_micros=round(time_us),
                data_deps=self.last if after is None else after,
                attr=[kinds["AttributeProto"](name=name, **{of: value}) for name, (of, value) in attributes.items()],
            )
        )
        return number


def gpu_nodes(prediction: Prediction, place: Place, pieces: Pieces, groups: Groups) -> list[Any]:
    """The nodes of a GPU's step; `groups` is added to."""
    trace = GpuTrace(place=place, groups=groups)
    rank = prediction.ranks[place.pipeline_rank]
    for action in prediction.timeline.order.actions[place.pipeline_rank]:
        for node in _exchange(prediction, trace, action, sends=False):
            trace.join(node)
        _work(trace, pieces, getattr(rank.chunks[action.chunk], BUCKETS[action.kind]), str(action))
        list(_exchange(prediction, trace, action, sends=True))
    for name, bucket in (
        ("gradients", rank.blocking_reduction + rank.gradient_reduction),
        ("parameters", rank.parameter_all_gather),
        ("optimizer", rank.optimizer),
    ):
        _work(trace, pieces, bucket, name)
    return trace.nodes


def _work(trace: GpuTrace, pieces: Pieces, bucket: Bucket, name: str) -> None:
    """Compute and messages of a bucket."""
    beside: list[int | None] = []
    before, time_us = trace.last, 0.0
    for piece in pieces.of(bucket):
        call = piece.item.call
        if not isinstance(call, Collective) or call.NAME not in COLLECTIVES:
            time_us += (
                piece.wait_us if isinstance(call, SendRecv) else piece.time_us if piece.stream == COMPUTE else 0.0
            )
            continue
        if piece.stream != COMPUTE and piece.wait_us < HIDDEN * piece.item.alone_us:
            beside.append(trace.collective(piece, after=before))
            continue
        trace.compute(name, time_us)
        time_us = 0.0
        trace.collective(piece)
    trace.compute(name, time_us)
    trace.join(*beside)


def _exchange(prediction: Prediction, trace: GpuTrace, action: Action, *, sends: bool) -> Iterator[int]:
    """The message that an action sends on, or the one it needs, where that is another rank's."""
    placement = prediction.timeline.order.placement
    if action.kind == "W":
        return
    rank, chain = trace.place.pipeline_rank, placement.chains[action.chunk]
    stage, forward = placement.stages[rank][action.chunk], action.kind == "F"
    step = 1 if forward == sends else -1
    holders = placement.holders()
    other = holders.get((chain, stage + step))
    if other is None or other[0] == rank:
        return
    lower = min(stage, stage + step)
    sender_rank, sender_chunk = holders[chain, lower]
    sent = [
        unit.call.size_bytes * unit.count
        for repeated in prediction.ranks[sender_rank].chunks[sender_chunk].send.blocks
        for unit in repeated.priced.units
        if isinstance(unit.call, SendRecv)
    ]
    tag = ((action.microbatch * placement.depth + lower) * placement.chain_count + chain) * 2 + forward
    kind, name = ("COMM_SEND_NODE", "send") if sends else ("COMM_RECV_NODE", "receive")
    yield trace.message(kind, f"{name} {action}", sum(sent), trace.place.at(other[0]), tag)
