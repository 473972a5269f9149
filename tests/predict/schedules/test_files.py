"""Orders to files and back: torch's CSV, read by torch itself, and JSON."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from predict.schedules import order_json, registry, torch_csv
from predict.schedules.engine.timing import ChunkTimes, makespan
from predict.schedules.order_files import read_order, write_order
from sampling.errors import ConfigError, UserError
from tests.predict.schedules.orders import same


def test_torch_reads_what_is_written() -> None:
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    order = registry.order("dualpipev", ranks=2, chunks=2, microbatches=4)
    for row in csv.reader(io.StringIO(torch_csv.dump(order))):
        actions = [torch_schedules._Action.from_str(cell) for cell in row]
        assert [str(action) for action in actions] == row


def test_torch_idle_slots_and_transfers_are_left_out() -> None:
    written = "0F0,0SEND_F0,,0RECV_B0,0I0,0W0\n,1RECV_F0,1F0,1B0,1SEND_B0\n"
    order = torch_csv.load(written)
    assert [[str(action) for action in row] for row in order.actions] == [
        [f"{kind} of microbatch 0, chunk 0" for kind in kinds] for kinds in (("F", "B", "W"), ("F", "BW"))
    ]


def test_an_order_file_is_a_schedule(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    write_order(registry.order("zbv", ranks=4, chunks=2, microbatches=9), path)
    times = ChunkTimes(forward=1, backward_input=1, backward_weight=1)
    read = registry.order(str(path), ranks=4, chunks=2, microbatches=9)
    assert makespan(read, times) == makespan(registry.order("zbv", ranks=4, chunks=2, microbatches=9), times)
    assert registry.get(str(path)).splits_backward
    with pytest.raises(ConfigError, match="holds an order of 4 ranks, 2 chunks per rank and 9 microbatches"):
        registry.order(str(path), ranks=4, chunks=2, microbatches=8)


def test_json_without_placement_is_a_loop() -> None:
    order = order_json.load('{"per_rank": [[["F", 0, 0], ["BW", 0, 0]], [["F", 0, 0], ["B", 0, 0], ["W", 0, 0]]]}')
    assert order.placement.stages == ((0,), (1,))
    assert makespan(order, ChunkTimes(forward=1, backward_input=1, backward_weight=1)) == 5


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.csv", "0F0,0X0\n", r"row 1, cell 2: '0X0' is not an action"),
        ("a.csv", "0F0,0B0\n0F0,0B0\n", r"the rows hold stages \[0, 0\]; give each of 0 to 1 to one rank"),
        ("a.csv", "0F0,0B0,2F0,2B0\n1F0,1B0\n", "give every rank equally many"),
        ("a.csv", "0F0,0B99999999999\n", "larger than any pipeline"),
        ("a.csv", "0F0,0B99999999\n", "99999999 microbatches a chain|100000000 microbatches a chain"),
        ("a.csv", "", "no actions"),
        ("a.csv", "0F0\n", "the backward of microbatch 0, chunk 0 is missing"),
        ("a.csv", "(0F0;0B0)OVERLAP\n", "is not an action"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "holds no mapping; give"),
        ("a.json", '{"per_rank": [[["F", 0]]]}', r"per_rank\[0\]\[0\]: \[\"F\", 0\] is not an action"),
        ("a.json", '{"per_rank": [[["F", true, 0]]]}', "is not an action"),
        ("a.json", '{"per_rank": [[["F", 0, 2000000000]]]}', "2000000001 chunks per rank, but no rank has as many"),
        ("a.json", "[" * 100_000, "not valid JSON"),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0]]], "placement": {"stages": [["0"]], "chains": [0.7]}}',
            r"placement\.stages\[0\]\[0\]: '0' is not a whole number.*placement\.chains\[0\]: 0.7 is not",
        ),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0], ["F", 0, 1], ["BW", 0, 1], ["F", 0, 2], ["BW", 0, 2]]], '
            '"placement": {"stages": [[0, 0, 0]], "chains": [0, 0, 1]}}',
            "does not hold each of the stages",
        ),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0]]], "placement": {"stages": [[0]], "chains": [1]}}',
            r"the chains \(1,\)\. Number the chains from 0",
        ),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0]]], "placement": {"stages": [[1]], "chains": [0]}}',
            "once a chain. Give each of the stages 0 to 0 of a chain to one chunk of one rank",
        ),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0]]], "rank": 1}',
            "rank: unknown key; did you mean 'per_rank'",
        ),
        ("a.csv", "0B0,0F0\n", "deadlocks: rank 0 stops at BW of microbatch 0, chunk 0, which needs F of microbatch 0"),
        ("a.csv", "0" * 200_000, "not valid CSV"),
        (
            "a.json",
            '{"per_rank": [[["F", 0, 0], ["BW", 0, 0]]], "placement": 3}',
            "placement: 3 is not a mapping; give a mapping of stages, chains",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=fault) as raised:
        read_order(path)
    assert str(path) in str(raised.value)


def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    order = registry.order("dualpipe", ranks=4, chunks=2, microbatches=8)
    with pytest.raises(ConfigError, match="two copies"):
        write_order(order, tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"\.csv or \.json"):
        write_order(order, tmp_path / "a.txt")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_order(tmp_path / "missing.csv")


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    write_order(registry.order("1f1b", ranks=2, chunks=1, microbatches=3), path)
    first = read_order(path)
    assert read_order(path) is first
    assert registry.order(str(path), ranks=2, chunks=1, microbatches=3) is first
    write_order(registry.order("zb-h1", ranks=2, chunks=1, microbatches=3), path)
    assert same(read_order(path), registry.order("zb-h1", ranks=2, chunks=1, microbatches=3))
