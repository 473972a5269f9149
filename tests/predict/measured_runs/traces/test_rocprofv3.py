"""Traces of rocprofv3, made as it writes them."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from predict.measured_runs.traces import files_of_traces, traces_in
from sampling.errors import UserError
from sampling.importers.torch_trace.events import Trace

GEMM, NORM = "Cijk_Alik_Bljk_BBS_BH", "fused_rms_norm_kernel"


def durations(traces: Sequence[Trace]) -> list[list[tuple[str, float, float]]]:
    return [[(each.name, each.start_us, each.duration_us) for each in trace.kernels] for trace in traces]


HEAD = '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"'
ROWS = [
    f'"KERNEL_DISPATCH","Agent 4",1,0,7,1,16,"{GEMM}",1,5000,9000',
    f'"KERNEL_DISPATCH","Agent 4",1,0,7,2,17,"{NORM}",2,9000,9500',
    f'"KERNEL_DISPATCH","Agent 5",1,0,7,3,16,"{GEMM}",3,5000,8000',
]
ON_FIRST = [(GEMM, 5.0, 4.0), (NORM, 9.0, 0.5)]
ON_SECOND = [(GEMM, 5.0, 3.0)]


def test_rocprofv3_csv_with_the_copies_beside_it(tmp_path: Path) -> None:
    kernels, copies = tmp_path / "7_kernel_trace.csv", tmp_path / "7_memory_copy_trace.csv"
    kernels.write_text("\n".join([HEAD, *ROWS]))
    copies.write_text(
        '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 0","Agent 4",9,1000,2000\n'
    )
    found = [trace for file in files_of_traces(tmp_path) for trace in traces_in(file)]
    assert durations(found) == [[("Memcpy MEMORY_COPY_HOST_TO_DEVICE", 1.0, 1.0), *ON_FIRST], ON_SECOND]


def test_rocprofv3_json(tmp_path: Path) -> None:
    def dispatch(kernel: int, agent: int, start: int, end: int) -> dict[str, object]:
        about = {"kernel_id": kernel, "agent_id": {"handle": agent}, "queue_id": {"handle": 1}}
        return {"start_timestamp": start, "end_timestamp": end, "dispatch_info": about}

    symbols = [{"kernel_id": 16, "formatted_kernel_name": GEMM}, {"kernel_id": 17, "kernel_name": NORM}]
    records = {
        "kernel_dispatch": [dispatch(16, 4, 5000, 9000), dispatch(17, 4, 9000, 9500), dispatch(16, 5, 5000, 8000)]
    }
    path = tmp_path / "7_results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [{"kernel_symbols": symbols, "buffer_records": records}]}))
    assert durations(traces_in(path)) == [ON_FIRST, ON_SECOND]


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def fields(*given: tuple[int, int | bytes | str]) -> bytes:
    out = b""
    for number, value in given:
        data = value.encode() if isinstance(value, str) else value
        out += varint(number << 3 | (2 if isinstance(data, bytes) else 0))
        out += varint(len(data)) + data if isinstance(data, bytes) else varint(data)
    return out


def packet(*given: tuple[int, int | bytes | str]) -> bytes:
    return fields((1, fields(*given)))


def test_rocprofv3_perfetto(tmp_path: Path) -> None:
    """Names and categories may be interned or written out."""

    def begin(track: int, at: int, **name: int | str) -> bytes:
        named = (10, name["id"]) if "id" in name else (23, name["text"])
        category = (3, 1) if "id" in name else (22, "kernel_dispatch")
        return packet((8, at), (10, 1), (11, fields((9, 1), (11, track), category, named)))

    def end(track: int, at: int) -> bytes:
        return packet((8, at), (10, 1), (11, fields((9, 2), (11, track))))

    interned = packet(
        (10, 1), (12, fields((1, fields((1, 1), (2, "kernel_dispatch"))), (2, fields((1, 3), (2, GEMM)))))
    )
    tracks = [
        packet((60, fields((1, number), (2, f"COMPUTE AGENT [{agent}] QUEUE [1] (GPU)"))))
        for number, agent in ((70, 4), (300, 5))
    ]
    slices = [
        begin(70, 5000, id=3),
        end(70, 9000),
        begin(70, 9000, text=NORM),
        end(70, 9500),
        begin(300, 5000, id=3),
        end(300, 8000),
    ]
    path = tmp_path / "7_results.pftrace"
    path.write_bytes(b"".join([interned, *tracks, *slices]))
    assert durations(traces_in(path)) == [ON_FIRST, ON_SECOND]


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.pftrace", b"\x0f\x01"), ("x_results.json", b"{"), ("x.sqlite", b"no database"), ("x.nsys-rep", b"")],
)
def test_what_is_no_trace_is_refused_in_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=name) as error:
        traces_in(path)
    assert "\n" not in str(error.value)
