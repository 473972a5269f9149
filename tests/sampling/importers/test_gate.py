"""The physical gate: what it quarantines, and what it lets through."""

import math

import pytest

from sampling.collectives.kinds import AllGather
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.importers.gate import judge
from sampling.importers.table import Row, Table
from sampling.operators.gemm import Gemm
from sampling.operators.vocabulary import Embedding
from sampling.speed_of_light import physical_bound_us


@pytest.fixture(scope="module")
def h100() -> Cluster:
    return load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")


def gemm(m: int = 4096) -> Gemm:
    return Gemm(dtype="bf16", m=m, n=4096, k=4096)


def table(*rows: Row) -> Table:
    return Table(source="test", name="test", hardware="h100-sxm", rows=rows)


def forward(time_us: float, m: int = 4096) -> Row:
    return Row(call=gemm(m), phase="forward", time_us=time_us)


def plausible(count: int, cluster: Cluster) -> list[Row]:
    sizes = [1024 + 64 * index for index in range(count)]
    return [forward(1.5 * physical_bound_us(gemm(m), "forward", cluster), m) for m in sizes]


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(0.9, "faster than the physical bound"), (1e4, "wrong unit"), (math.nan, "no time"), (-1.0, "no time")],
)
def test_one_bad_row_among_good_ones_is_quarantined_alone(h100: Cluster, factor: float, reason: str) -> None:
    bad = forward(factor * physical_bound_us(gemm(), "forward", h100))
    reasons = judge(table(*plausible(9, h100), bad), h100)
    assert not any(reasons[:9])
    assert reasons[9].startswith(reason)


def test_milliseconds_read_as_microseconds_and_the_reverse_quarantine_the_table(h100: Cluster) -> None:
    good = plausible(10, h100)
    for factor in (1e-3, 1e4):
        wrong = [Row(call=row.call, phase=row.phase, time_us=row.time_us * factor) for row in good]
        assert all("its table is impossible: 100 %" in reason for reason in judge(table(*wrong), h100))


def test_a_table_with_over_a_fifth_impossible_rows_is_no_evidence(h100: Cluster) -> None:
    impossible = [forward(0.001), forward(0.002)]
    assert not all(judge(table(*plausible(8, h100), *impossible), h100))
    assert all(judge(table(*plausible(7, h100), *impossible), h100))


def test_duplicates_that_contradict_each_other_are_quarantined_and_noise_is_not(h100: Cluster) -> None:
    bound_us = physical_bound_us(gemm(), "forward", h100)
    close = judge(table(forward(2 * bound_us), forward(2.1 * bound_us)), h100)
    apart = judge(table(forward(2 * bound_us), forward(5 * bound_us)), h100)
    outlier = judge(table(*[forward(2 * bound_us)] * 4, forward(5 * bound_us)), h100)
    assert close == ("", "")
    assert all(reason.startswith("conflicting duplicates") for reason in apart)
    assert [bool(reason) for reason in outlier] == [False] * 4 + [True]


def test_a_dtype_that_the_device_lacks_is_quarantined(h100: Cluster) -> None:
    a100 = load_cluster(hardware="a100-80gb", nodes=1, gpus_per_node=1, profile="test")
    row = Row(call=Gemm(dtype="fp8", m=64, n=64, k=64), phase="forward", time_us=20.0)
    assert "no fp8 peak" in judge(table(row), a100)[0]
    assert judge(table(row), h100) == ("",)


def test_what_the_publisher_says_of_a_row_counts(h100: Cluster) -> None:
    row = Row(call=gemm(), phase="forward", time_us=1e3, flaw="its result is wrong")
    assert judge(table(*plausible(9, h100), row), h100)[9] == "its result is wrong"


def test_an_all_gather_faster_than_its_link_is_impossible() -> None:
    gh200 = load_cluster(hardware="gh200", nodes=1, gpus_per_node=1, profile="test")
    call = AllGather(size_bytes=268_435_456, ranks=8, ranks_per_node=1)
    assert "faster" in judge(table(Row(call=call, phase="forward", time_us=118.0)), gh200)[0]


def test_a_small_vocabulary_bounds_what_an_embedding_reads() -> None:
    def look_up(vocab: int) -> Embedding:
        return Embedding(dtype="bf16", batch=8, seq_len=4096, vocab=vocab, hidden=1024, tp=1, sp=False)

    assert look_up(1024).bytes_moved("forward") < look_up(32_768).bytes_moved("forward")
    assert look_up(32_768).bytes_moved("forward") == look_up(65_536).bytes_moved("forward")


def messages(cluster: Cluster, slow_every: int) -> list[Row]:
    """All-gathers a little larger each, every so many of them held up by others' traffic."""
    calls = [AllGather(size_bytes=2**28 + 2**20 * step, ranks=4, ranks_per_node=4) for step in range(200)]
    return [
        Row(
            call=call,
            phase="forward",
            time_us=1.5 * call.terms("forward", cluster)["wire"] * (1 if step % slow_every else 5),
        )
        for step, call in enumerate(calls)
    ]


def test_messages_of_no_bytes_have_no_bandwidth_to_be_compared(h100: Cluster) -> None:
    empty = [AllGather(size_bytes=0, ranks=4, ranks_per_node=4)] * 9
    rows = [Row(call=call, phase="forward", time_us=20.0) for call in empty]
    assert not any("erratic" in reason for reason in judge(table(*rows, *messages(h100, 20)), h100))


@pytest.mark.parametrize(("slow_every", "refused"), [(3, True), (20, False)])
def test_a_table_of_messages_that_say_nothing_of_the_next_is_refused(
    h100: Cluster, slow_every: int, refused: bool
) -> None:
    reasons = judge(table(*messages(h100, slow_every)), h100)
    assert all("erratic" in reason for reason in reasons) if refused else not any(reasons)
