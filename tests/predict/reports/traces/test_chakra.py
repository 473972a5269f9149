"""Chakra traces, read back by a reader typed from the published schema: nodes wait for earlier ones, and messages meet."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from predict import one_batch
from predict.cli import main
from predict.rank.groups import groups_of
from predict.reports.traces.chakra import GROUPS, Place, save_chakra
from predict.reports.traces.pieces import Pieces
from predict.step.priced_rank import BUCKETS
from sampling.collectives.kinds import Collective, SendRecv

pytest.importorskip("google.protobuf", reason="no protobuf here: pip install 'steptime[chakra]'")
RUNS = Path("configs/runs")
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ATTRIBUTE_VALUES = (3, 7, 9, 13, 27, 29)
"""Numbers of double_val, int32_val, int64_val, uint64_val, bool_val and string_val in AttributeProto."""


@dataclass
class Node:
    """What a reader of the feeder's kind takes from a node."""

    id: int = 0
    name: str = ""
    type: int = 0
    duration: int = 0
    deps: list[int] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field on the wire: varints and length-delimited ones are all that our traces have."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size


def attribute(data: bytes) -> tuple[str, object]:
    found = dict(fields(data))
    name = found.pop(1)
    assert isinstance(name, bytes)
    (number, value), *more = found.items() or [(27, 0)]
    assert number in ATTRIBUTE_VALUES and not more
    return name.decode(), value.decode() if isinstance(value, bytes) else value


def node(data: bytes) -> Node:
    made = Node()
    for number, value in fields(data):
        if isinstance(value, int):
            names = {1: "id", 3: "type", 7: "duration"}
            setattr(made, names[number], value)
        elif number == 2:
            made.name = value.decode()
        elif number == 5:
            at = 0
            while at < len(value):
                dep, at = varint(value, at)
                made.deps.append(dep)
        else:
            assert number == 10
            name, content = attribute(value)
            made.attributes[name] = content
    return made


def read(path: Path) -> list[Node]:
    data, at, parts = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        parts.append(data[at : at + size])
        at += size
    assert dict(fields(parts[0])) == {1: b"0.0.4"}
    return [node(part) for part in parts[1:]]


def test_nodes_wait_for_earlier_ones_and_hold_the_time_in_which_a_rank_computes(tmp_path: Path) -> None:
    prediction = one_batch(RUNS / "llama3-70b-64xh100.yml", ["batch.global=16"])
    paths = save_chakra(prediction, tmp_path, every_gpu=False)
    assert [path.name.split(".")[-2] for path in paths] == ["0", "16", "32", "48"]
    groups = json.loads((tmp_path / GROUPS).read_text())
    pieces = Pieces(prediction.prices)
    for index, path in enumerate(paths):
        nodes, rank = read(path), prediction.ranks[index]
        assert [each.id for each in nodes] == list(range(len(nodes)))
        assert all(dep < each.id for each in nodes for dep in each.deps)
        assert {each.attributes["pg_name"] for each in nodes if each.type == COLLECTIVE} <= set(groups)
        waited_us = sum(
            piece.wait_us
            for action in prediction.timeline.order.actions[index]
            for piece in pieces.of(getattr(rank.chunks[action.chunk], BUCKETS[action.kind]))
            if isinstance(piece.item.call, Collective) and not isinstance(piece.item.call, SendRecv)
        )
        expected_us = float(prediction.timeline.busy[index]) - waited_us + rank.optimizer.median_us
        compute = [each.duration for each in nodes if each.type == COMPUTE]
        assert sum(compute) == pytest.approx(expected_us, abs=len(compute), rel=2e-3)


def test_every_send_is_received_once_with_its_bytes(tmp_path: Path) -> None:
    prediction = one_batch(RUNS / "deepseek-v3-1024xh100.yml", ["batch.global=512"])
    nodes = [each for path in save_chakra(prediction, tmp_path, every_gpu=False) for each in read(path)]
    sends, receives = (
        Counter(
            tuple(each.attributes[f"comm_{key}"] for key in ("src", "dst", "tag", "size"))
            for each in nodes
            if each.type == kind
        )
        for kind in (SEND, RECEIVE)
    )
    assert sends == receives
    assert set(sends.values()) == {1}
    assert all(size for *_, size in sends)


def test_groups_are_those_of_the_plan() -> None:
    run = one_batch(RUNS / "deepseek-v3-1024xh100.yml").run
    groups = groups_of(run)
    for each in (groups.tp, groups.cp, groups.ep, groups.replicas, groups.expert_replicas):
        members = {
            Place(plan=run.plan, pipeline_rank=1, local=local).group(each.name, each.ranks) for local in range(128)
        }
        if each.ranks > 1:
            assert sorted(gpu for group in members for gpu in group) == list(range(128, 256))  # they part the GPUs
            assert {len(group) for group in members} == {each.ranks}


def test_every_gpu_has_a_file_and_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    config = str(RUNS / "demo.yml")
    assert main(["trace", config, "--format", "chakra", "--every-gpu", "-o", str(tmp_path / "et")]) == 0
    assert sorted(path.name for path in (tmp_path / "et").iterdir()) == ["comm_group.json", "demo.0.et", "demo.1.et"]
    (tmp_path / "file").touch()
    assert main(["trace", config, "--format", "chakra", "-o", str(tmp_path / "file")]) == 2
