"""The breakdown of a step held against times that are summed another way, from the timeline's actions and the ranks' ends, and the lines of
its ledger against what the hardware allows."""

from collections.abc import Iterator
from statistics import fmean

import pytest

from predict.ledger.books import Ledger
from predict.ledger.compute import step_items
from predict.step.prediction import Prediction
from sampling.collectives.kinds import Collective
from sampling.speed_of_light import physical_bound_us

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


def impossible_lines(ledger: Ledger, rel: float = 1e-9) -> Iterator[str]:
    """Lines of a ledger that are negative, or below what compute, bandwidth and links allow."""
    yield from (f"{name}: {time_us} µs" for name, time_us in ledger.account_us.items() if time_us < 0)
    for operator in ledger.compute.operators:
        if operator.over_bound is not None and operator.over_bound < 1 - rel:
            yield f"{operator}"
    for each in step_items(ledger.prediction):
        if isinstance(each.item.call, Collective) and each.item.phase:
            bound_us = each.calls * physical_bound_us(each.item.call, each.item.phase, ledger.prediction.run.cluster)
            if each.alone_us < bound_us * (1 - rel):
                yield f"{each.item}: {each.alone_us} of {bound_us} µs"
