"""Logs of hipblaslt-bench, as its versions print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampling.errors import SamplesError
from sampling.importers.hipblaslt_bench import read
from sampling.importers.table import ImportRequest
from sampling.operators.gemm import Gemm

LOG = """\
Is supported 1 / Total solutions: 1
[0]:transA,transB,grouped_gemm,batch_count,m,n,k,a_type,b_type,c_type,d_type,compute_type,hipblaslt-Gflops,us
    N,N,0,1,3584,2048,512,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,379037,19.8297
    N,N,0,4,128,128,128,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,4037,9.8
"""


def test_a_column_major_product_is_ours_transposed(tmp_path: Path) -> None:
    log = tmp_path / "gemm.log"
    log.write_text(LOG)
    (table,) = read(ImportRequest(path=log, system="mi300x"))
    assert [(row.call, row.time_us) for row in table.rows] == [(Gemm(dtype="bf16", m=2048, n=3584, k=512), 19.8297)]
    assert table.remarks == ("1 rows left out: batched, or of another dtype",)


def test_a_log_without_a_device_or_a_result_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "gemm.log"
    log.write_text("nothing")
    with pytest.raises(SamplesError, match="--system"):
        read(ImportRequest(path=log))
    with pytest.raises(SamplesError, match="no results"):
        read(ImportRequest(path=log, system="mi300x"))
