"""Logs of nccl-tests and rccl-tests."""

from pathlib import Path

import pytest

from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, SendRecv
from sampling.errors import SamplesError
from sampling.importers.nccl_tests import read
from sampling.importers.table import ImportRequest
from tests.sampling.importers.nccl_logs import COLUMNS, REDUCED, SMALL, log


def put(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.log"
    path.write_text(text)
    return path


def test_out_of_place_times_become_calls_of_the_headers_ranks(tmp_path: Path) -> None:
    (table,) = read(ImportRequest(path=put(tmp_path, log("all_reduce_perf", 2, 8, SMALL, REDUCED))))
    assert (table.hardware, table.name) == ("h100-sxm", "all_reduce 2x8 job.log")
    assert table.provenance["version"] == "22203"
    assert [(row.call, row.time_us, row.flaw) for row in table.rows] == [
        (AllReduce(size_bytes=1024, ranks=16, ranks_per_node=8), 21.35, ""),
        (AllReduce(size_bytes=268_435_456, ranks=16, ranks_per_node=8), 1201.5, ""),
    ]


def test_several_runs_in_one_log_are_several_tables(tmp_path: Path) -> None:
    gathered = "   134217728       4194304     float    none      -1    700.1  191.71  167.75      0    698.0  192.29  168.25      0"
    exchanged = "   134217728       4194304     float    none      -1    720.4  186.31  163.02      0    719.9  186.44  163.13    N/A"
    sent = "   134217728      33554432     float     sum      -1   5500.2   24.40   24.40      0   5498.0   24.41   24.41    N/A"
    text = (
        log("all_gather_perf", 1, 8, gathered)
        + log("alltoall_perf", 1, 8, exchanged)
        + log("sendrecv_perf", 2, 4, sent)
    )
    gather, all_to_all, send = read(ImportRequest(path=put(tmp_path, text)))
    assert gather.rows[0].call == AllGather(size_bytes=134_217_728, ranks=8, ranks_per_node=8)
    assert all_to_all.rows[0].call == AllToAll(size_bytes=134_217_728, ranks=8, ranks_per_node=8)
    assert send.rows[0].call == SendRecv(size_bytes=134_217_728, ranks=2, ranks_per_node=1)
    assert not any(row.flaw for table in (gather, all_to_all, send) for row in table.rows)


def test_an_rccl_log_is_read_alike(tmp_path: Path) -> None:
    text = (
        "+ ./build/all_reduce_perf -b 1K -e 256M -f 2 -g 8\n"
        "# nThread: 1 nGpus: 8 minBytes: 1024 maxBytes: 268435456 step: 2(factor) warmupIters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
        "#\nrccl-tests: Version develop:9ad1a52\n# Using devices\n"
        + "".join(
            f"#   Rank  {rank} Pid  99 on  host-a device  {rank} [0000:0c:00.0] AMD Instinct MI300X\n"
            for rank in range(8)
        )
        + COLUMNS
        + REDUCED
        + "\n"
    )
    (table,) = read(ImportRequest(path=put(tmp_path, text)))
    assert (table.hardware, len(table.rows)) == ("mi300x", 1)
    assert table.rows[0].call == AllReduce(size_bytes=268_435_456, ranks=8, ranks_per_node=8)


def test_wrong_and_unchecked_results_are_flawed_and_empty_messages_left_out(tmp_path: Path) -> None:
    wrong = SMALL.replace("0.08      0", "0.08     17")
    unchecked = SMALL.replace("0.08      0", "0.08    N/A")
    empty = "           0             0     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0"
    (table,) = read(ImportRequest(path=put(tmp_path, log("all_reduce_perf", 1, 8, SMALL, wrong, unchecked, empty))))
    assert [row.flaw for row in table.rows] == [
        "",
        "its result is wrong: #wrong is 17",
        "its result was not checked: #wrong is N/A (run with -c 1)",
    ]
    assert table.remarks == ("1 row left out: of 0 bytes",)


def test_a_log_without_its_header_can_be_read_with_its_collective_named(tmp_path: Path) -> None:
    path = put(tmp_path, log("all_reduce_perf", 1, 8, SMALL, device="Strange GPU").replace("all_reduce_perf", "run"))
    with pytest.raises(SamplesError, match="--collective"):
        read(ImportRequest(path=path))
    with pytest.raises(SamplesError, match=r"'Strange GPU' is not in the catalogue.*--system"):
        read(ImportRequest(path=path, collective="all_reduce"))
    (table,) = read(ImportRequest(path=path, collective="all_reduce", system="h200"))
    assert table.hardware == "h200"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("some other program's output\n", "no results"),
        (log("all_reduce_perf", 1, 8, SMALL[:55]), "job.log:18: not a whole row"),
        (log("all_reduce_perf", 0, 8, SMALL), "lacks the header lines '# Rank"),
        (
            log("all_reduce_perf", 1, 8, SMALL).replace("node0 device  7", "node1 device  7"),
            "different numbers",
        ),
    ],
)
def test_a_bad_log_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SamplesError, match=said) as failure:
        read(ImportRequest(path=put(tmp_path, text)))
    assert "job.log" in str(failure.value)


def test_a_program_of_another_collective_is_noted(tmp_path: Path) -> None:
    (table,) = read(ImportRequest(path=put(tmp_path, log("broadcast_perf", 1, 8, SMALL))))
    assert table.rows == () and "no collective of ours is broadcast" in table.remarks[0]
