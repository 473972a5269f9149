"""Groups that nobody sampled: the two tiers, times what sampled groups of the same tier take beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from predict.prices.collectives import CollectiveCorrection, collective_us
from predict.prices.sampled import WithinSamples
from regressors.bank.times import Source, Times
from sampling.call import Call, Phase
from sampling.collectives.kinds import AllGather, AllReduce, Collective
from sampling.hardware.cluster import Cluster, load_cluster

CLUSTER = load_cluster(hardware="a100-80gb", nodes=4, gpus_per_node=8, profile="none")
SLOWER = 3.0
WITHIN = AllReduce(size_bytes=2**24, ranks=8, ranks_per_node=8)
ACROSS = AllReduce(size_bytes=2**24, ranks=16, ranks_per_node=8)


class SampledInside:
    """Groups of eight inside a node, three times as slow as the network says; a guess of 1 µs for every other."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:
        return [self._time(call, cluster) for call, _ in calls]

    def _time(self, call: Call, cluster: Cluster) -> Times | None:
        if not isinstance(call, AllReduce):
            return None
        known = call.ranks == call.ranks_per_node == 8
        sampled = known and call.size_bytes <= 2**26
        time_us = SLOWER * collective_us(call, cluster) if known else 1.0
        source: Source = "measured" if sampled else "extrapolated"
        return Times(median_us=time_us, low_us=time_us / 2, high_us=time_us * 2, source=source)


def answered(call: Collective) -> Times | None:
    fitted = SampledInside()
    return WithinSamples(fitted, CollectiveCorrection(fitted)).times([(call, "forward")], CLUSTER)[0]


def test_a_sampled_group_is_answered_by_its_samples_at_any_size() -> None:
    for size_bytes in (2**20, 2**30):
        call = replace(WITHIN, size_bytes=size_bytes)
        time = answered(call)
        assert time is not None
        assert time.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


@pytest.mark.parametrize(
    "call", [replace(WITHIN, ranks=4, ranks_per_node=4), replace(WITHIN, ranks=2, ranks_per_node=2)]
)
def test_another_group_on_the_tier_is_as_much_slower(call: Collective) -> None:
    time = answered(call)
    assert time is not None
    assert time.source == "extrapolated"
    assert time.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


def test_another_kind_of_collective_takes_the_ratio_of_all() -> None:
    call = AllGather(size_bytes=2**24, ranks=8, ranks_per_node=8)
    corrected = CollectiveCorrection(SampledInside()).time(call, CLUSTER)
    assert corrected is not None
    assert corrected.median_us == pytest.approx(SLOWER * collective_us(call, CLUSTER))


def test_a_tier_that_nobody_sampled_is_left_to_the_network() -> None:
    assert answered(ACROSS) is None
