"""Traces of Nsight Systems, made as nsys exports them."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from predict import load
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.traces import traces_in
from predict.measured_runs.traces.summary import summary
from sampling.importers.torch_trace.events import Trace


def durations(traces: Sequence[Trace]) -> list[list[tuple[str, float, float]]]:
    return [[(each.name, each.start_us, each.duration_us) for each in trace.kernels] for trace in traces]


def nsys(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            create table StringIds (id, value);
            create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName);
            create table CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, correlationId, globalPid, copyKind);
            create table CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
            create table NVTX_EVENTS (start, end, text, textId, globalTid, eventType);
            create table TARGET_INFO_GPU (id, name);
            insert into StringIds values (1, 'nvjet_tst_64x64'), (2, 'rms_norm_kernel'), (3, 'ProfilerStep#7');
            insert into TARGET_INFO_GPU values (0, 'NVIDIA H100 80GB HBM3'), (1, 'NVIDIA H100 80GB HBM3');
            insert into CUPTI_ACTIVITY_KIND_KERNEL values (5000, 9000, 0, 7, 11, 1 << 24, 1, 1),
                (9000, 9500, 0, 7, 12, 1 << 24, 2, 2), (5000, 8000, 1, 7, 11, 2 << 24, 1, 1);
            insert into CUPTI_ACTIVITY_KIND_MEMCPY values (1000, 2000, 0, 8, 14, 1 << 24, 1);
            insert into CUPTI_ACTIVITY_KIND_RUNTIME values (4000, 4100, (1 << 24) + 99, 11, 3),
                (4500, 4600, (2 << 24) + 88, 11, 3);
            insert into NVTX_EVENTS values (3000, 10000, null, 3, (1 << 24) + 99, 59),
                (3000, null, 'mark', null, (1 << 24) + 99, 34), (3500, 10500, null, 3, (2 << 24) + 88, 59);
            """
        )
    return path


def test_nsight_systems(tmp_path: Path) -> None:
    traces = traces_in(nsys(tmp_path / "report.sqlite"))
    assert durations(traces) == [
        [("Memcpy HtoD", 1.0, 1.0), ("nvjet_tst_64x64", 5.0, 4.0), ("rms_norm_kernel", 9.0, 0.5)],
        [("nvjet_tst_64x64", 5.0, 3.0)],
    ]
    first = traces[0]
    assert (first.devices, first.world_size, first.rank, first.kernels[1].launched_us) == (
        ["NVIDIA H100 80GB HBM3"],
        2,
        0,
        4.0,
    )
    assert [(span.name, span.start_us, span.duration_us) for span in first.spans] == [("ProfilerStep#7", 3.0, 7.0)]
    assert [(each.kernels[0].launched_us, len(each.spans)) for each in traces[1:]] == [(4.5, 1)], (
        "those of its own process"
    )
    found = summary(first)
    assert found is not None and found.by_class == {"gemm": 4.0, "copy": 1.0, "rms_norm": 0.5}


def test_the_ledger_of_a_marked_step_closes(tmp_path: Path) -> None:
    """`predict explain --trace` cuts it as it does torch's, by the kernels' names."""
    ranks = [
        "cluster.nodes=1",
        "cluster.gpus_per_node=2",
        "plan.tp=2",
        "plan.pp=1",
        "plan.vpp=1",
        "plan.cp=1",
        "plan.dp=1",
        "plan.zero=0",
    ]
    run = load("configs/runs/llama3-70b-64xh100.yml", [*ranks, "plan.schedule=1f1b", "batch.global=1"])
    measured = read_measured(nsys(tmp_path / "report.sqlite"), run)
    assert (measured.on_device, measured.rule, len(measured.ranks)) == (True, "1 ProfilerStep annotations", 2)
    assert measured.headings["gemm"] == pytest.approx(3.5)
    assert sum(measured.headings.values()) == pytest.approx(measured.step_us)
