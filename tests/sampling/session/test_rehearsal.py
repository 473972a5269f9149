"""A session rehearsed over a fake device and clock: nothing that was timed is lost, whatever ends the session and whenever."""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sampling.call import Call, Request
from sampling.errors import UserError
from sampling.hardware.cluster import load_cluster
from sampling.session import archive
from sampling.session import rehearsal as rehearsing
from sampling.session.archive import EventWriter, SessionLog, progress_of, read_events, read_facts
from sampling.session.gpu_run import MOST_LOST, RealStep, time_plan
from sampling.session.rehearsal import REFUSAL, FakeBench, FakeClock, Script
from sampling.store.pace_log import PaceReading
from sampling.store.sample import Sample
from sampling.timing.timer import PRESETS
from tests.made_rows import row
from tests.sampling.session.rehearsed import HARDWARE, KilledError, MortalClock, phases_of, plan_of, rehearsal

KILLS = 15
STEP = RealStep(name="dense", module="predict", arguments=("measure", "run.yml"), seconds=20.0)


def test_a_session_killed_at_random_moments_loses_nothing_and_ends_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(14)
    plan = plan_of(models=8)
    monkeypatch.setattr(rehearsing, "START_S", 1.0)
    kept: list[dict[str, Any]] = []
    append, write_through = EventWriter.append, archive.write_through
    writes_left = [0]  # until one is cut short by a kill; 0 for none

    def remember(writer: EventWriter, event: dict[str, Any]) -> None:
        append(writer, event)
        kept.append(event)

    def write_a_part(descriptor: int, line: bytes) -> None:
        writes_left[0] -= 1
        if writes_left[0] == 0:
            os.write(descriptor, line[: chance.randrange(len(line))])
            raise KilledError
        write_through(descriptor, line)

    monkeypatch.setattr(EventWriter, "append", remember)
    monkeypatch.setattr(archive, "write_through", write_a_part)
    directory = tmp_path / "machine-0"
    clock, killed = MortalClock(), 0
    while killed < KILLS:
        if killed % 3 == 2:
            copy = tmp_path / f"machine-{killed}"
            shutil.copytree(directory, copy)
            shutil.rmtree(directory)
            directory = copy
        clock.killed_at_s = clock() + chance.uniform(0.5, 20)
        writes_left[0] = chance.randrange(1, 60) if killed % 2 else 0
        with pytest.raises(KilledError):
            rehearsal(directory, plan, clock=clock).run(token=f"session-{killed}")
        killed += 1
    clock.killed_at_s, writes_left[0] = float("inf"), 0
    log = rehearsal(directory, plan, clock=clock).run(token="last")

    rows = [event["row"] for event in read_events(directory) if event["event"] == "row"]
    assert rows == [event["row"] for event in kept if event["event"] == "row"]
    assert len({json.dumps([row["call"], row["fields"], row["phase"], row["state"]]) for row in rows}) == len(rows)
    missing = {call for call, _ in phases_of(plan) - {(row.call, row.phase) for row in log.progress.rows}}
    assert all("begun 2 times" in log.progress.why_left_out(call) for call in missing)
    assert len(missing) <= 2
    assert len(read_facts(directory).sessions) > KILLS // 2
    assert len(list(directory.iterdir())) <= 8


def workers_lost(directory: Path) -> int:
    return sum(event["event"] == "lost" for event in read_events(directory))


def test_a_device_that_fails_costs_one_call_and_the_next_worker_goes_on(tmp_path: Path) -> None:
    plan = plan_of(models=2)
    culprit = plan.planned[5].request.call
    log = rehearsal(tmp_path, plan, script=Script(fatal=[culprit])).run()
    assert {(row.call, row.phase) for row in log.progress.rows} == {
        (call, phase) for call, phase in phases_of(plan) if call != culprit
    }
    assert workers_lost(tmp_path) == 1
    assert "illegal memory access" in log.progress.left_out[culprit]
    before = len(log.progress.rows)
    again = rehearsal(tmp_path, plan, script=Script(fatal=[culprit])).run(token="again")
    assert (len(again.progress.rows), workers_lost(tmp_path)) == (before, 1)


def test_a_broken_device_ends_the_session(tmp_path: Path) -> None:
    plan = plan_of(models=2)
    script = Script(fatal=[each.request.call for each in plan.planned])
    for sessions in (1, 2):
        rehearsal(tmp_path, plan, script=script).run(token=f"session-{sessions}")
        assert workers_lost(tmp_path) == sessions * MOST_LOST
    assert any("seems broken" in event.get("text", "") for event in read_events(tmp_path))


def test_a_call_that_is_killed_twice_is_not_begun_a_third_time(tmp_path: Path) -> None:
    plan = plan_of(models=2)
    clock = MortalClock()
    for token in ("one", "two"):
        clock.killed_at_s = clock() + 15.2
        with pytest.raises(KilledError):
            rehearsal(tmp_path, plan, clock=clock).run(token=token)
    begun = progress_of(read_events(tmp_path)).begun
    clock.killed_at_s = float("inf")
    log = rehearsal(tmp_path, plan, clock=clock).run(token="three")
    assert {call for call, _ in phases_of(plan)} - {row.call for row in log.progress.rows} == {begun}
    assert "begun 2 times" in log.progress.why_left_out(begun)


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError])
def test_an_interrupt_or_an_error_of_the_users_is_no_fault_of_the_call(
    error: type[BaseException], tmp_path: Path
) -> None:
    plan, log = plan_of(models=2), SessionLog(tmp_path, lambda: 0.0)

    def interrupted(requests: Iterable[Request], **_: object) -> None:
        next(iter(requests))
        raise error

    for _ in range(3):
        with pytest.raises(error):
            time_plan(log, plan.planned, interrupted, now_s=lambda: 0.0, until_s=1.0)
    assert log.progress.lacking(plan.planned[0].request) == plan.planned[0].request


@pytest.mark.parametrize(
    ("quarantines", "times_timed"),
    [([], 1), (["noisy: …"], 2), (["noisy: …"] * 3, 4), (["faster than the physical bound: …"] * 3, 2)],
)
def test_a_quarantined_row_is_taken_again_unless_it_is_impossible_twice(
    quarantines: list[str], times_timed: int, tmp_path: Path
) -> None:
    planned = plan_of(models=2).planned[:2]
    (probe, product), left, timed = planned, iter(quarantines), Counter[Call]()

    def bench(requests: Iterable[Request], *, keep: Callable[[Sample], None], **_: object) -> None:
        for request in requests:
            timed[request.call] += 1
            for phase in request.phases:
                keep(row(request.call, phase, quarantine=next(left, "") if request.call == probe.request.call else ""))

    for _ in range(3):
        time_plan(SessionLog(tmp_path, lambda: 0.0), planned, bench, now_s=lambda: 0.0, until_s=1.0)
    assert timed == {probe.request.call: times_timed, product.request.call: 1}


def test_new_calls_come_before_third_timings(tmp_path: Path) -> None:
    planned = plan_of(models=2).planned[:4]
    timed: list[Call] = []

    def busy(requests: Iterable[Request], *, keep: Callable[[Sample], None], **_: object) -> None:
        for _number, request in zip(range(3), requests, strict=False):  # the session's time is over then
            timed.append(request.call)
            for phase in request.phases:
                keep(row(request.call, phase, quarantine="other processes took …"))

    for _ in range(4):
        time_plan(SessionLog(tmp_path, lambda: 0.0), planned, busy, now_s=lambda: 0.0, until_s=1.0)
    planned_calls = [each.request.call for each in planned]
    first, second, _, fourth = planned_calls
    assert timed == [*planned_calls[:3], *planned_calls[:3], fourth, first, second, fourth, first, second]


def test_a_call_that_the_time_was_too_short_for_is_not_left_out(tmp_path: Path) -> None:
    planned, log = plan_of(models=0).planned, SessionLog(tmp_path, lambda: 0.0)
    time_plan(log, planned, lambda requests, **_: list(requests), now_s=lambda: 0.0, until_s=1.0)
    assert log.progress.left_out == {}
    assert [log.progress.lacking(each.request) for each in planned] == [each.request for each in planned]


@pytest.mark.parametrize(("left_s", "states"), [(-1.0, []), (0.005, []), (100.0, ["burst", "sustained"])])
def test_a_rehearsed_phase_is_not_begun_where_a_real_one_would_not_be(left_s: float, states: list[str]) -> None:
    product = next(each.request for each in plan_of(models=0).planned if each.request.call.NAME == "gemm")
    clock, rows, readings = FakeClock(), list[Sample](), list[PaceReading]()
    cluster = load_cluster(hardware=HARDWARE, nodes=1, gpus_per_node=1, profile="")
    deadline_s = rehearsing.START_S + rehearsing.BUILD_S + left_s
    bench = FakeBench(clock, cluster, PRESETS["quick"], 0, Script(), deadline_s)
    forward = Request(call=product.call, phases=("forward",))
    bench(
        [forward],
        keep=rows.append,
        say=lambda text: None,
        left_out=lambda call, reason: None,
        keep_reading=readings.append,
    )
    assert len(readings) == (2 if left_s > 0 else 0)
    assert [row.state for row in rows] == states
    assert clock() < deadline_s + 1.0


def test_calls_left_out_have_their_reason_and_a_failed_capture_is_reported_once_and_costs_no_row(
    tmp_path: Path,
) -> None:
    plan = plan_of(models=2)
    refused = [each.request.call for each in plan.planned[4:7]]
    log = rehearsal(tmp_path, plan, script=Script(refused=refused, uncaptured=["moe_layer"])).run()
    assert log.progress.left_out == dict.fromkeys(refused, REFUSAL)
    notes = [event["text"] for event in read_events(tmp_path) if event["event"] == "note"]
    assert [note.partition(":")[0] for note in notes] == ["moe_layer"]
    timed = {(call, phase) for call, phase in phases_of(plan) if call not in refused}
    assert {(row.call, row.phase) for row in log.progress.rows} == timed


def test_400_seconds_time_150_calls_with_the_quick_timer(tmp_path: Path) -> None:
    plan = plan_of(models=64)
    log = rehearsal(tmp_path, plan, budget_s=400.0).run()
    calls = {row.call for row in log.progress.rows}
    assert len(calls) >= 150
    assert {call.NAME for call in calls} == {each.request.call.NAME for each in plan.planned}


def test_real_steps_run_last_within_the_time_kept_for_them(tmp_path: Path) -> None:
    long = RealStep(name="long", module="predict", arguments=(), seconds=500.0)
    run = rehearsal(tmp_path, plan_of(), budget_s=100.0, steps=(STEP, long))
    log = run.run()
    assert log.progress.steps == {"dense": {"rehearsed": True}}
    assert run.clock() <= 100.0
    events = list(read_events(tmp_path))
    assert events[-1]["event"] == "step"
    assert run.run(token="again").progress.steps == log.progress.steps
