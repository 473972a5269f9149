"""The timeline as a Chrome trace: a slice an action, an arrow a transfer between ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from predict.reports.traces.chrome import chrome_trace, save_trace
from predict.schedules import registry
from predict.schedules.engine.order import Action, Order, Placement
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate
from sampling.errors import UserError

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
