"""The first cause of made GPU traces into which a fault was edited, and controls that accuse nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from predict.explain.ledger import Explanation, explain
from predict.explain.measured import read_measured
from predict.explain.replay.what_if import what_if
from sampling.errors import UserError
from tests.predict.explain.made_device_traces import (
    Events,
    awaiting,
    device_step,
    is_compute,
    is_message,
    paused,
    prediction,
    slowed,
)
from tests.predict.explain.made_traces import event, write

PAUSE_US = 40_000.0


def attention(each: dict[str, object]) -> bool:
    return is_compute(each) and each["name"] == "attention"


def slow_rank(step: Events) -> list[Events]:
    slow = slowed(step, is_compute, 1.6)
    late_us = max(each["ts"] + each["dur"] for each in slow if is_compute(each)) - max(
        each["ts"] + each["dur"] for each in step if is_compute(each)
    )
    return [slow, awaiting(step, late_us)]


def loading(step: Events) -> Events:
    at = next(each["ts"] for each in step if is_compute(each)) + 1.0
    waited = paused(step, PAUSE_US)
    pause = next(each for each in waited if is_compute(each) and each["ts"] > at + PAUSE_US)
    return [*waited, event("enumerate(DataLoader)#1", 0.0, pause["ts"] + 3 * PAUSE_US, "user_annotation")]


CASES: dict[str, tuple[Callable[[Events], list[Events]], str]] = {
    "none": (lambda step: [step, step], "none"),
    "even small gaps": (lambda step: [paused(step, 300.0, launched_late=True)] * 2, "none"),
    "delayed collective": (lambda step: [slowed(step, is_message, 2.0)] * 2, "communication"),
    "slow attention": (lambda step: [slowed(step, attention, 3.0)] * 2, "attention"),
    "host gap": (lambda step: [paused(step, PAUSE_US, launched_late=True)] * 2, "host"),
    "standstill": (lambda step: [paused(step, PAUSE_US), awaiting(step, PAUSE_US)], "standstill"),
    "slow rank": (slow_rank, "slow_rank"),
    "all 1.5 times": (lambda step: [slowed(step, is_compute, 1.5)] * 2, "slow_compute"),
    "data loader": (lambda step: [loading(step)] * 2, "data"),
    "one rank": (lambda step: [slowed(step, is_message, 2.0)], "messages"),
}


@pytest.mark.parametrize(("edit", "cause"), CASES.values(), ids=CASES)
def test_the_first_cause_on_gpus_is_the_fault_that_was_edited_in(
    tmp_path: Path, edit: Callable[[Events], list[Events]], cause: str
) -> None:
    found = explain(prediction(), write(tmp_path, edit(device_step())))
    assert found.verdict[0].cause == cause, [each.text for each in found.verdict]
    named = sum(term.measured_us for term in found.terms)
    assert named + found.unexplained_us == pytest.approx(found.measured.step_us)
    if cause == "none":
        assert {each.cause for each in found.verdict} <= {"none", "largest_row"}
        assert not any(each.cost_us for each in found.verdict)


def told(tmp_path: Path, edit: Callable[[Events], list[Events]]) -> Explanation:
    return explain(prediction(), write(tmp_path, edit(device_step())))


def test_sentences_speak_of_the_device_and_tell_bandwidth(tmp_path: Path) -> None:
    slow = told(tmp_path / "slow", CASES["all 1.5 times"][0]).verdict[0].text
    assert "power or thermal limit" in slow and "threads" not in slow
    link = told(tmp_path / "link", CASES["delayed collective"][0]).verdict[0].text
    assert "50.0% of the assumed speed" in link and "GB/s a rank" in link
    alone = told(tmp_path / "alone", CASES["one rank"][0])
    assert "at least 50.0% of the assumed speed" in alone.verdict[0].text


def test_a_trace_without_products_is_refused(tmp_path: Path) -> None:
    bare = [each | {"args": {}} if each["cat"] == "cpu_op" else each for each in device_step()]
    with pytest.raises(UserError, match="shows no matrix product with its shapes"):
        explain(prediction(), write(tmp_path, [bare, bare]))


def test_a_replay_on_gpus_keeps_what_the_trace_shows(tmp_path: Path) -> None:
    run = prediction().run
    step = slowed(device_step(), attention, 3.0)
    measured = read_measured(write(tmp_path, [paused(step, PAUSE_US, launched_late=True)] * 2), run)
    own, without_gaps, faster = (
        what_if(run, run, measured, kernels=of) for of in ({}, {"host": 0.01}, {"attention": 0.5})
    )
    assert own.median_us == pytest.approx(measured.step_us)
    assert own.median_us - without_gaps.median_us == pytest.approx(0.99 * PAUSE_US, rel=0.1)
    assert own.median_us - faster.median_us == pytest.approx(measured.headings["attention"] / 2, rel=0.1)
