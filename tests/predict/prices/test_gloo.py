"""gloo's stated times against the rows of a machine, and what makes them longer."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from predict.prices.cost_model import CallPhase
from predict.prices.gloo import TICK_US, gloo_time, wait_after, work_of
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.workload.decompose import decompose
from regressors.bank.bank import Bank, open_bank
from regressors.bank.times import Times
from sampling.arithmetic.operator import Composite
from sampling.call import Counted
from sampling.cells.layer import DenseLayer
from sampling.collectives.kinds import KINDS, AllGather, AllReduce, AllToAll, Collective, ReduceScatter, SendRecv
from sampling.files.places import SHIPPED_DATA
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.store.profiles import SHIPPED
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.units import MIB
from tests.predict.step.small_runs import run
from tests.tiny_runs import calls_of


def machine(gpus_per_node: int = 2, **links: float) -> Cluster:
    return load_cluster(
        hardware="cpu", nodes=1, gpus_per_node=gpus_per_node, cores=gpus_per_node, profile=SHIPPED, **links
    )


def rows(*names: str) -> list[Sample]:
    tables = read_samples(SHIPPED_DATA / "samples" / SHIPPED, names)
    return [row for row in iterate_samples(tables) if not row.quarantine]


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_rows_of_every_size_are_within_its_interval(kind: type[Collective]) -> None:
    by_call: dict[Collective, list[float]] = {}
    for row in rows(kind.NAME):
        assert isinstance(row.call, Collective)
        by_call.setdefault(row.call, []).append(row.time_us)
    times = {call: gloo_time(call, machine()) for call in by_call}
    inside = [times[call].low_us < median(found) < times[call].high_us for call, found in by_call.items()]
    assert np.mean(inside) >= 0.9
    errors = [abs(math.log(times[call].median_us / median(found))) for call, found in by_call.items()]
    assert np.median(errors) < math.log(1.3)


@dataclass(frozen=True)
class OperatorsAlone:
    """Rows of operators on one rank, as a machine has them that sampled no collective."""

    bank: Bank

    def times(self, calls: list[CallPhase], cluster: Cluster) -> list[Times | None]:
        answers = self.bank.times(calls, cluster)
        return [
            None if isinstance(call, Collective | Composite) else time
            for (call, _), time in zip(calls, answers, strict=True)
        ]


def test_layers_over_two_ranks_take_at_most_as_long_as_rows_of_ranks_that_shared_cores_and_half_at_least() -> None:
    bank = open_bank(SHIPPED_DATA / "regressors" / SHIPPED)
    prices = PriceList([OperatorsAlone(bank), SpeedOfLight()], machine(), profile_error=0.0)
    errors = []
    for row in rows("dense_layer"):
        if getattr(row.call, "tp", 1) == 2:
            parts = prices.priced([Counted(call=row.call, phase=row.phase)])
            errors.append(math.log(sum(part.total_us for part in parts) / row.time_us))
    assert len(errors) > 50
    assert -math.log(2) < np.median(errors) < 0


def test_a_collective_of_a_layer_waits_for_half_of_its_compute_and_no_longer_than_half_a_tick() -> None:
    assert wait_after(500.0).median_us == pytest.approx(250.0)
    assert wait_after(1e6).median_us == pytest.approx(TICK_US / 2)
    subject = run(tp=2)
    forward = calls_of(decompose(subject)[0].chunks[0].forward)
    (cell,) = {each.call for each in forward if isinstance(each.call, DenseLayer)}
    prices = PriceList([SpeedOfLight()], subject.cluster, profile_error=0.0)
    counted = Counted(call=cell, phase="forward")
    waits = sum(each.total_us for each in prices.priced([counted])) - sum(
        each.total_us for each in prices.parts(counted)
    )
    compute_us = sum(each.total_us for each in prices.parts(counted) if not isinstance(each.call, Collective))
    assert waits == pytest.approx(min(compute_us, 2 * TICK_US) / 2)


def test_a_reduce_scatter_is_an_all_reduce_of_a_copy() -> None:
    of_all, of_part = (
        gloo_time(kind(size_bytes=MIB, ranks=2, ranks_per_node=2), machine()) for kind in (AllReduce, ReduceScatter)
    )
    assert of_part.median_us > of_all.median_us


def test_one_message_has_a_core_at_either_end_and_an_exchange_shares_them() -> None:
    one, exchange = (
        gloo_time(kind(size_bytes=size, ranks=2, ranks_per_node=2), machine()).median_us
        for kind, size in ((SendRecv, 64 * MIB), (AllGather, 128 * MIB))
    )
    assert exchange > 1.9 * one


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_more_ranks_slower_threads_and_slower_streams_never_save_time(kind: type[Collective]) -> None:
    for size_bytes in (1, 2**16, 2**24):
        times = [
            gloo_time(kind(size_bytes=size_bytes, ranks=ranks, ranks_per_node=ranks), machine(ranks)).median_us
            for ranks in (1, 2, 4, 8)
        ]
        assert times[0] == 0.0
        assert all(few < many for few, many in pairwise(times))
        call = kind(size_bytes=size_bytes, ranks=2, ranks_per_node=2)
        usual = gloo_time(call, machine()).median_us
        assert gloo_time(call, machine(intra_node_latency_us=60)).median_us > usual
        assert gloo_time(call, machine(intra_node_gb_per_s=2)).median_us > usual


@pytest.mark.parametrize(
    ("kind", "ranks", "messages"),
    [(SendRecv, 2, 1), (AllToAll, 4, 1), (AllGather, 4, 3), (AllReduce, 4, 6), (ReduceScatter, 4, 6)],
)
def test_between_nodes_each_message_takes_one_hop_of_the_network_and_wake_ups_those_of_a_node(
    kind: type[Collective], ranks: int, messages: int
) -> None:
    call = kind(size_bytes=1, ranks=ranks, ranks_per_node=1)

    cluster = load_cluster(hardware="cpu", nodes=ranks, gpus_per_node=1, cores=1, profile=SHIPPED)
    inside, between = (
        replace(link, latency_us=link.latency_us + 1) for link in (cluster.intra_node, cluster.inter_node)
    )
    usual = gloo_time(call, cluster).median_us
    assert gloo_time(call, replace(cluster, inter_node=between)).median_us - usual == pytest.approx(messages)
    assert gloo_time(call, replace(cluster, intra_node=inside)).median_us - usual == pytest.approx(
        work_of(call).wake_ups
    )
