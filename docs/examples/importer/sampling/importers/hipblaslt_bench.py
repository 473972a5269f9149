"""Logs of hipblaslt-bench (github.com/ROCm/rocm-libraries): GEMM times on AMD GPUs.

The log is CSV between other lines: a header that starts with `transA` (behind `[0]:` in newer versions), then a line of
values. Matrices are column-major, so its m is our n.
"""

from __future__ import annotations

from collections.abc import Iterator

from sampling.errors import SamplesError
from sampling.importers.table import ImportRequest, Row, Table
from sampling.operators.gemm import Gemm

SOURCE = "hipblaslt-bench"
PATH = "the output of hipblaslt-bench; its device with --system"
DTYPES = {"f32_r": "fp32", "f16_r": "fp16", "bf16_r": "bf16"}


def read(request: ImportRequest) -> list[Table]:
    """One table per log; SamplesError if it holds no result, or its device is not given."""
    if request.path is None or not request.path.is_file():
        raise SamplesError(f"import {SOURCE}: no file {request.path or ''}; give {PATH}")
    if not request.system:
        raise SamplesError(f"import {SOURCE}: a log does not name its device; add --system, for example mi300x")
    results = list(_results(request.path.read_text()))
    if not results:
        raise SamplesError(f"{request.path}: no results of {SOURCE}; give {PATH}")
    rows = tuple(
        Row(
            call=Gemm(dtype=DTYPES[one["d_type"]], m=int(one["n"]), n=int(one["m"]), k=int(one["k"])),
            phase="forward",
            time_us=float(one["us"]),
        )
        for one in results
        if one["d_type"] in DTYPES and one.get("batch_count", "1") == "1"
    )
    left_out = len(results) - len(rows)
    return [
        Table(
            source=SOURCE,
            name=request.path.name,
            hardware=request.system,
            rows=rows,
            provenance={"file": request.path.name},
            remarks=(f"{left_out} rows left out: batched, or of another dtype",) if left_out else (),
        )
    ]


def _results(log: str) -> Iterator[dict[str, str]]:
    header: list[str] = []
    for line in log.splitlines():
        values = [value.strip() for value in line.split(",")]
        if values[0].endswith("transA"):
            header = [name.lower() for name in values]
        elif header and len(values) == len(header):
            yield dict(zip(header, values, strict=True))
