"""Halves of a backward where samples know the whole alone: its shares by FLOPs, never its parts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from predict import estimate
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import HALVES, PriceList
from predict.rank.blocks import calls_of
from predict.workload.decompose import decompose
from regressors.bank.times import Times
from sampling.call import Call, Counted, Phase
from sampling.cells.layer import DenseLayer
from sampling.hardware.cluster import Cluster
from tests.predict.step.ledger_sums import assert_ledger_holds
from tests.predict.step.small_runs import run

WHOLE_US = 3000.0


class Sampled:
    """Cells whose listed phases were sampled."""

    def __init__(self, *phases: Phase) -> None:
        self.phases = phases

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:
        return [self._time(phase) if call.NAME == "dense_layer" else None for call, phase in calls]

    def _time(self, phase: Phase) -> Times | None:
        time_us = {"backward": WHOLE_US, "backward_accumulate": WHOLE_US + 100.0}.get(phase, 1000.0)
        return (
            Times(median_us=time_us, low_us=time_us, high_us=time_us, source="measured")
            if phase in self.phases
            else None
        )


def layer(tp: int = 1) -> DenseLayer:
    (call,) = {
        counted.call
        for counted in calls_of(decompose(run(pp=2, tp=tp, schedule="zb-h1"))[0].chunks[0].forward)
        if isinstance(counted.call, DenseLayer)
    }
    return call


def halves_us(*phases: Phase, tp: int = 1) -> list[float]:
    subject = run(pp=2, tp=tp)
    prices = PriceList([Sampled(*phases), SpeedOfLight()], subject.cluster, profile_error=0.0)
    return [sum(unit.total_us for unit in prices.priced([Counted(call=layer(tp), phase=half)])) for half in HALVES]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("also", [(), ("backward_input",), ("backward_weight",)])
def test_a_whole_without_both_of_its_halves_is_split_by_flops(tp: int, also: tuple[Phase, ...]) -> None:
    of_input, of_weight = halves_us("forward", "backward", *also, tp=tp)
    call = layer(tp)
    assert of_input + of_weight == pytest.approx(WHOLE_US)
    assert of_input / of_weight == pytest.approx(call.flops("backward_input") / call.flops("backward_weight"))
    assert of_input > of_weight


def test_sampled_halves_keep_their_own_prices() -> None:
    assert halves_us("backward", *HALVES) == [1000.0, 1000.0]


def test_without_a_sampled_whole_the_parts_are_taken() -> None:
    assert halves_us("forward") == pytest.approx(halves_us())


def test_a_split_whole_leaves_a_step_measured_and_no_shorter_than_its_work() -> None:
    """B and W of a layer take what BW does, accumulation included."""

    def priced(schedule: str) -> tuple[float, float]:
        subject = run(pp=2, tp=2, schedule=schedule)
        sampled = Sampled("forward", "backward", "backward_accumulate")
        result = estimate(subject, prices=PriceList([sampled, SpeedOfLight()], subject.cluster, profile_error=0.0))
        assert_ledger_holds(result)
        return float(result.timeline.busy.sum()), result.sources["measured"]

    (whole_us, whole_share), (parted_us, parted_share) = priced("1f1b"), priced("zb-h1")
    assert parted_us == pytest.approx(whole_us, rel=0.01)
    assert parted_share == pytest.approx(whole_share, rel=0.01)
