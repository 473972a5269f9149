"""A predicted step as execution traces of MLCommons Chakra, from which ASTRA-sim and others simulate its network.

One `NAME.GPU.et` for each GPU, by the published schema (mlcommons/chakra, schema/protobuf/et_def.proto, version 0.0.4): messages one
after the other, each behind its length as a varint, GlobalMetadata first, then Nodes. Declared here are the fields that a trace of
ours has, under their published numbers: readers with the whole schema read them. `comm_group.json` has the members of the groups.

Compute between two messages is one node. A message that compute does not wait for depends on what came before the work that overlaps
with it, and is joined at the end of the action. A pipeline rank's actions follow each other; a receive comes before the action that
needs it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from predict.reports.traces.pieces import COMPUTE, Piece, Pieces
from predict.run.plan import Plan
from predict.schedules.engine.order import Action
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket
from predict.step.priced_rank import BUCKETS
from sampling.collectives.kinds import Collective, SendRecv
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.files.disk import write_atomically


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A GPU: its pipeline rank, and its place among the GPUs of that."""

    plan: Plan
    pipeline_rank: int
    local: int

    @property
    def gpu(self) -> int:
        return self.pipeline_rank * self._block + self.local

    @property
    def _block(self) -> int:
        return self.plan.tp * self.plan.cp * self.plan.dp

    def at(self, pipeline_rank: int) -> int:
        """The GPU of another pipeline rank with which it exchanges activations."""
        return pipeline_rank * self._block + self.local

    def group(self, name: str, ranks: int) -> tuple[int, ...]:
        """The members of its group of this name (`predict.rank.groups`) and size; all GPUs of its pipeline rank for a
        name that is not a module's, such as that of clipping."""
        strides = self._strides()
        if name not in strides or ranks == 1:
            return tuple(self.pipeline_rank * self._block + each for each in range(self._block))
        stride = strides[name]
        first = self.local - (self.local // stride) % ranks * stride
        return tuple(self.pipeline_rank * self._block + first + stride * each for each in range(ranks))

    def _strides(self) -> dict[str, int]:
        plan = self.plan
        experts, replicas = plan.etp * plan.ep, plan.cp * plan.dp
        shard = plan.shard or replicas
        expert_shard = max(1, max(1, self._block // experts) // (replicas // shard))
        return {
            "tp": 1,
            "cp": plan.tp,
            "dp": plan.tp,
            "shard": plan.tp,
            "copies": plan.tp * shard,
            "etp": 1,
            "ep": plan.etp,
            "expert dp": experts,
            "expert shard": experts,
            "expert copies": experts * expert_shard,
        }


VERSION = "0.0.4"
PACKAGE = "ChakraProtoMsg"
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "token_exchange": 6, "reduce_scatter": 7}
"""Name of a call of ours → CollectiveCommType."""
DOUBLE, INT64, UINT64, INT32, BOOL, STRING, MESSAGE = 1, 3, 4, 5, 8, 9, 11
"""Types of google.protobuf.FieldDescriptorProto."""
VALUES = {
    "double_val": (3, DOUBLE),
    "int32_val": (7, INT32),
    "int64_val": (9, INT64),
    "uint64_val": (13, UINT64),
    "bool_val": (27, BOOL),
    "string_val": (29, STRING),
}
FIELDS: dict[str, tuple[tuple[str, int, int, bool], ...]] = {
    "GlobalMetadata": (("version", 1, STRING, False), ("attr", 2, MESSAGE, True)),
    "Node": (
        ("id", 1, UINT64, False),
        ("name", 2, STRING, False),
        ("type", 3, INT32, False),
        ("data_deps", 5, UINT64, True),
        ("start_time_micros", 6, UINT64, False),
        ("duration_micros", 7, UINT64, False),
        ("attr", 10, MESSAGE, True),
    ),
}
"""Message → (field, number, type, whether repeated). An enum is an int32 on the wire."""


@cache
def messages() -> dict[str, Any]:
    """Name of a message → its class; needs protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="steptime_chakra.proto", package=PACKAGE, syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    attribute.field.add(name="name", number=1, type=STRING, label=1)
    attribute.oneof_decl.add(name="value")
    for name, (number, kind) in VALUES.items():
        attribute.field.add(name=name, number=number, type=kind, label=1, oneof_index=0)
    for message, fields in FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            of = {"type_name": f".{PACKAGE}.AttributeProto"} if kind == MESSAGE else {}
            declared.field.add(name=name, number=number, type=kind, label=3 if repeated else 1, **of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("AttributeProto", *FIELDS)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


def encoded(found: Iterable[Any]) -> bytes:
    """Messages as a trace file holds them."""
    parts = []
    for message in found:
        content = message.SerializeToString(deterministic=True)
        parts += [_varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(128 | value & 127)
        value >>= 7
    made.append(value)
    return bytes(made)


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
        """A message of a block; with `after`, at the same time as what follows those nodes. Its number where nothing waits for it yet."""
        call, item = piece.item.call, piece.item
        assert isinstance(call, Collective)
        members = self.place.group(item.group, call.ranks)
        number = self.groups.setdefault(members, len(self.groups) + 1)
        attributes = {"comm_type": ("int64_val", COLLECTIVES[call.NAME]), "pg_name": ("string_val", str(number))}
        size = {"comm_size": ("int64_val", round(call.size_bytes * item.count))}
        node = self._add(call.NAME, "COMM_COLL_NODE", piece.time_us, attributes | size, after=after)
        if after is None:
            self._wait_for(node)
            return None
        return node

    def message(self, kind: str, name: str, size_bytes: float, other: int, tag: int) -> int:
        """A send to another GPU, or a receive from one, after what was last."""
        here, sends = self.place.gpu, kind == "COMM_SEND_NODE"
        attributes = {
            "comm_size": ("int64_val", round(size_bytes)),
            "comm_src": ("int32_val", here if sends else other),
            "comm_dst": ("int32_val", other if sends else here),
            "comm_tag": ("int32_val", tag),
        }
        return self._add(name, kind, 0.0, attributes)

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
        stated: dict[str, tuple[str, Any]] | None = None,
        after: tuple[int, ...] | None = None,
    ) -> int:
        kinds, number = messages(), len(self.nodes)
        attributes = {"is_cpu_op": ("bool_val", False), **(stated or {})}
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


GROUPS = "comm_group.json"
MOST_NODES = 20_000_000
"""Nodes of all files: some 2 GB."""


def save_chakra(prediction: Prediction, folder: Path, *, every_gpu: bool) -> list[Path]:
    """Write the traces of one GPU of each pipeline rank, the first, or of every GPU; the paths of their files.

    UserError without protobuf, and for more nodes than MOST_NODES.
    """
    require_library("google.protobuf")
    run, pieces, groups = prediction.run, Pieces(prediction.prices), Groups()
    locals_ = range(run.plan.tp * run.plan.cp * run.plan.dp) if every_gpu else range(1)
    written: list[Path] = []
    for pipeline_rank in range(run.plan.pp):
        for local in locals_:
            place = Place(plan=run.plan, pipeline_rank=pipeline_rank, local=local)
            nodes = gpu_nodes(prediction, place, pieces, groups)
            if len(nodes) * len(locals_) * run.plan.pp > MOST_NODES:
                raise UserError(
                    f"--every-gpu: about {len(nodes) * len(locals_) * run.plan.pp:,} nodes are more than {MOST_NODES:,}; take fewer "
                    "microbatches, or one GPU of each pipeline rank"
                )
            written.append(folder / f"{run.name}.{place.gpu}.et")
            write_atomically(written[-1], encoded([messages()["GlobalMetadata"](version=VERSION), *nodes]))
    members = {str(number): list(group) for group, number in groups.items()}
    write_atomically(folder / GROUPS, json.dumps(members, indent=1).encode())
    return written
