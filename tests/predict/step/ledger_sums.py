"""The breakdown of a step held against times that are summed another way: from the timeline's actions and the ranks' ends."""

from __future__ import annotations

from statistics import fmean

import pytest

from predict.step.prediction import Prediction

IDLE = ("pp_bubble", "p2p", "stragglers", "step_overhead")
"""Headings of time in which ranks do nothing."""


def assert_ledger_holds(result: Prediction, rel: float = 1e-9) -> None:
    """The headings of work add up to the ranks' busy time, and no heading is negative; for prices at which the pipeline's own
    actions, which count as `p2p`, take no time."""
    headings, actions_us = result.breakdown_us, result.timeline.busy
    worked = [
        float(rank_us) + stage.gradients_us + stage.step_us
        for rank_us, stage in zip(actions_us, result.stages, strict=True)
    ]
    work_us = sum(time_us for name, time_us in headings.items() if name not in IDLE)
    assert work_us == pytest.approx(fmean(worked), rel=rel)
    waiting_us = sum(headings.get(name, 0.0) for name in IDLE)
    assert waiting_us == pytest.approx(result.median_us - fmean(worked), rel=rel, abs=rel * result.median_us)
    assert {name: time_us for name, time_us in headings.items() if time_us < 0} == {}
