"""A step's Chrome trace has every action, whose operators and waits add up to it, on streams whose slices follow each other."""

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from predict import one_batch
from predict.cli import main
from predict.reports.traces.chrome import chrome_trace, save_trace, step_trace
from predict.reports.traces.pieces import Pieces
from predict.schedules import registry
from predict.schedules.engine.order import Action, Order, Placement
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate
from predict.step.priced_rank import BUCKETS
from sampling.errors import UserError
from tests.predict.command import Command

RUNS = Path("configs/runs")
OVERRIDES = {
    "demo.yml": [],
    "llama3-70b-64xh100.yml": ["batch.global=16"],
    "deepseek-v3-1024xh100.yml": ["batch.global=512"],
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_operators_and_waits_add_up_to_each_action(name: str) -> None:
    prediction = one_batch(RUNS / name, OVERRIDES[name])
    pieces = Pieces(prediction.prices)
    for rank in prediction.ranks:
        for chunk in rank.chunks:
            bucket = getattr(chunk, BUCKETS["F"])
            found = pieces.of(bucket)
            added = sum(piece.wait_us if piece.item.beside else piece.time_us for piece in found)
            assert added == pytest.approx(bucket.median_us)
            assert max(piece.end_us for piece in found) <= bucket.median_us * (1 + 1e-9)


@pytest.mark.parametrize("name", OVERRIDES)
def test_slices_of_a_stream_follow_each_other_and_arrows_meet(name: str) -> None:
    prediction = one_batch(RUNS / name, OVERRIDES[name])
    trace, detailed = step_trace(prediction)
    assert detailed == len(prediction.timeline.order.actions[0])
    streams: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    ends: dict[str, list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            streams[event["pid"], event["tid"]].append(event)
        elif event["ph"] in "sf":
            ends[event["id"]].append(event["ph"])
    assert {rank for rank, _ in streams} == set(range(prediction.run.plan.pp))
    for events in streams.values():
        for before, after in itertools.pairwise(events):
            if before["cat"] not in ("pp", "dp"):  # a send need not wait for the one before it
                assert before["ts"] + before["dur"] <= after["ts"] + 0.01
    assert ends
    assert all(found == ["s", "f"] for found in ends.values())
    last = max(event["ts"] + event["dur"] for events in streams.values() for event in events)
    assert last == pytest.approx(
        max(
            float(end) + rank.after_us
            for end, rank in zip(prediction.timeline.rank_ends, prediction.ranks, strict=True)
        ),
        rel=1e-6,
    )


def test_the_command_compresses_and_refuses_what_cannot_be(tmp_path: Path, command: Command) -> None:
    config = str(RUNS / "demo.yml")
    assert main(["trace", config, "-o", str(tmp_path / "step.json.gz")]) == 0
    assert json.loads(gzip.decompress((tmp_path / "step.json.gz").read_bytes()))["otherData"]["run"] == "demo"
    assert main(["trace", config, "-o", str(tmp_path / "step.txt")]) == 2
    assert "--every-gpu" in command.refused("trace", config, "--every-gpu", "-o", str(tmp_path / "step.json"))


# The timeline as a Chrome trace: a slice an action, an arrow a transfer between ranks.

TIMES = ChunkTimes(forward=1.0, backward_input=1.5, backward_weight=0.5, p2p=0.25)


def one_f_one_b() -> Timeline:
    return simulate(registry.order("1f1b", ranks=4, chunks=1, microbatches=6), TIMES)


def v_shaped() -> Timeline:
    """Two ranks with two chunks each; the turn of the V stays on rank 1. The backward is split on rank 1."""
    first = (Action("F", 0, 0), Action("F", 0, 1), Action("BW", 0, 1), Action("BW", 0, 0))
    second = (
        *(Action("F", 0, chunk) for chunk in (0, 1)),
        *(Action(kind, 0, chunk) for chunk in (1, 0) for kind in ("B", "W")),
    )
    placement = Placement(stages=((0, 3), (1, 2)), chains=(0, 0))
    return simulate(Order.of((first, second), microbatches=1, placement=placement), TIMES)


def bidirectional() -> Timeline:
    """Two ranks that hold two copies of the model in opposite directions."""
    row = tuple(Action(kind, 0, chunk) for kind, chunk in (("F", 0), ("F", 1), ("BW", 1), ("BW", 0)))
    other = tuple(action._replace(chunk=1 - action.chunk) for action in row)
    placement = Placement(stages=((0, 1), (1, 0)), chains=(0, 1))
    return simulate(Order.of((row, other), microbatches=2, placement=placement), TIMES)


def events(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    return [event for event in chrome_trace(timeline, name="a run")["traceEvents"] if event["ph"] == phase]


def holding(timeline: Timeline, rank: int, time: float) -> dict[str, Any]:
    """The slice of the rank that runs at this time: the one a flow binds to."""
    (found,) = [
        event
        for event in events(timeline, "X")
        if event["tid"] == rank and event["ts"] <= time < event["ts"] + event["dur"]
    ]
    return found


def test_is_json_with_a_named_row_a_rank() -> None:
    trace = json.loads(json.dumps(chrome_trace(one_f_one_b(), name="a run")))
    named = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    assert [event["args"]["name"] for event in named if event["name"] == "process_name"] == ["a run"]
    assert [event["args"]["name"] for event in named if event["name"] == "thread_name"] == [
        f"rank {rank}" for rank in range(4)
    ]
    assert [(event["tid"], event["args"]["sort_index"]) for event in named if event["name"] == "thread_sort_index"] == [
        (rank, rank) for rank in range(4)
    ]


def test_a_step_too_large_for_a_viewer_is_refused_with_the_rule(tmp_path: Path) -> None:
    large = simulate(registry.order("afab", ranks=1, chunks=1, microbatches=100_001), TIMES)
    with pytest.raises(UserError, match="a trace holds at most 200,000 actions, and this step has 200,002"):
        save_trace(large, tmp_path / "trace.json", name="large")
    assert not list(tmp_path.iterdir())


def test_a_slice_for_every_action() -> None:
    timeline = one_f_one_b()
    slices = events(timeline, "X")
    assert len(slices) == 4 * 6 * 2
    assert max(event["ts"] + event["dur"] for event in slices) == timeline.makespan
    last = next(event for event in slices if event["tid"] == 3)
    assert (last["name"], last["ts"], last["dur"]) == ("F 0", 3 * 1.25, 1.0)
    assert last["args"] == {"kind": "F", "microbatch": 0, "chunk": 0, "stage": 3}


@pytest.mark.parametrize(("timeline", "flows"), [(one_f_one_b, 2 * 3 * 6), (v_shaped, 4), (bidirectional, 4)])
def test_flows_go_from_a_stage_to_its_neighbour(timeline: Any, flows: int) -> None:
    made = timeline()
    starts = {event["id"]: event for event in events(made, "s")}
    ends = {event["id"]: event for event in events(made, "f")}
    assert len(starts) == len(ends) == flows
    assert starts.keys() == ends.keys()
    assert len(events(made, "s")) == len(events(made, "f")) == flows, "no id twice"
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e"
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["tid"] != end["tid"]
        assert start["ts"] < end["ts"]
        sender, receiver = (holding(made, event["tid"], event["ts"]) for event in (start, end))
        assert receiver["ts"] == end["ts"]
        assert sender["args"]["microbatch"] == receiver["args"]["microbatch"]
        step = {"activation": 1, "gradient": -1}[start["name"]]
        assert receiver["args"]["stage"] == sender["args"]["stage"] + step
        kinds = {sender["args"]["kind"], receiver["args"]["kind"]}
        assert kinds == {"F"} if step == 1 else kinds <= {"B", "BW"}
