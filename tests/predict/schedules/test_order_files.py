"""Orders to files and back: torch's CSV, read by torch itself, and JSON."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from predict.schedules import order_json, registry, torch_csv
from predict.schedules.engine.order import KINDS
from predict.schedules.engine.timing import ChunkTimes, makespan
from predict.schedules.order_files import read_order, write_order
from predict.schedules.torch_csv import KIND_OF
from sampling.errors import ConfigError, UserError
from tests.predict.schedules.orders import same
from tests.predict.schedules.paper_bubbles import bubble_of


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


# Orders against those that the installed torch builds, for more counts than the stored tables have.

torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

CLASSES = {
    "looped-bfs": ("ScheduleLoopedBFS", (1, 2, 3)),
    "interleaved-1f1b": ("ScheduleInterleaved1F1B", (1, 2, 3)),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", (1, 2, 3)),
    "zbv": ("ScheduleZBVZeroBubble", (2,)),
    "dualpipev": ("ScheduleDualPipeV", (2,)),
}
Listed = list[tuple[str, int, int, bool]]


def of_torch(name: str, ranks: int, chunks: int, microbatches: int) -> list[Listed]:
    """What torch's class lists for each rank, without the processes that it wants to be built with."""
    made = object.__new__(getattr(torch_schedules, CLASSES[name][0]))
    rounds = max(1, microbatches // ranks)
    made.pp_group_size, made.n_local_stages, made._n_microbatches = ranks, chunks, microbatches
    made.num_stages = made._num_stages = ranks * chunks
    made.number_of_rounds, made.microbatches_per_round = rounds, microbatches // rounds
    placement = registry.get(name).placement(ranks, chunks)
    listed = []
    for rank in range(ranks):
        made._stages = [SimpleNamespace(stage_index=stage) for stage in placement.stages[rank]]
        listed.append([half for action in made._calculate_single_rank_operations(rank) for half in _halves(action)])
    return listed


def _halves(action: Any) -> Listed:
    if action is None:
        return []
    return [
        (KIND_OF[one.computation_type.value], one.microbatch_index, one.stage_index, bool(action.sub_actions))
        for one in action.sub_actions or [action]
    ]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("ranks", [1, 3, 5, 8])
def test_orders_are_those_of_torch(name: str, ranks: int) -> None:
    for chunks in CLASSES[name][1]:
        for microbatches in (1, 5, 8, 12, 16, 33):
            if registry.get(name).refusal(ranks, chunks, microbatches):
                continue
            order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
            ours = [
                [
                    (KINDS[kind], microbatch, stages[chunk], bool(paired))
                    for kind, microbatch, chunk, paired in row.tolist()
                ]
                for stages, row in zip(order.placement.stages, order.rows, strict=True)
            ]
            assert ours == of_torch(name, ranks, chunks, microbatches), (chunks, microbatches)


# Bubble rates that the zero-bubble paper prints: Qi, Wan, Huang & Lin, ICLR 2024, arXiv:2401.10241.

SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-auto-1p", "zb-auto-2p")
"""1F1B, 1F1B-I, ZB-H1, ZB-H2, ZB-1p and ZB-2p of the paper; the last two may keep p and 2p microbatches of activations."""
PRINTED = (
    ((8, 24, 24), (18522, 18086, 9337, 601), (0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433)),
    ((8, 32, 24), (18513, 18086, 9331, 626), (0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039)),
    ((8, 64, 24), (18546, 18097, 9321, 762), (0.124, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026)),
    ((8, 24, 32), (29718, 29444, 19927, 527), (0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029)),
    ((8, 32, 32), (29802, 29428, 19530, 577), (0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022)),
    ((8, 64, 32), (29935, 29621, 19388, 535), (0.1091, 0.032, 0.0554, 0.0294, 0.0554, 0.001)),
    ((16, 48, 48), (11347, 11248, 8132, 377), (0.2552, 0.1104, 0.1397, 0.0672, 0.1397, 0.0066)),
)
"""Ranks, microbatches and layers; profiled µs of F, B, W and the transfer; the bubble rate of each schedule."""


@pytest.mark.parametrize(("counts", "profiled_us", "printed"), PRINTED)
def test_bubble_rates_are_the_printed_ones(
    counts: tuple[int, int, int], profiled_us: tuple[float, float, float, float], printed: tuple[float, ...]
) -> None:
    for name, bubble in zip(SCHEDULES, printed, strict=True):
        # the paper's simulator lets only the first microbatch of a group wait for the wrap-around of interleaved 1F1B
        allowed = 4e-3 if name == "interleaved-1f1b" else 1e-4
        assert bubble_of(name, counts, profiled_us) == pytest.approx(bubble, abs=allowed), name
