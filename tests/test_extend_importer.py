"""An importer is added by one file: the example of `docs/extend.md`, in a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project_copy import project_with, run_module

HEADER = "transA,transB,M,N,K,d_type,compute_type,hipblaslt-Gflops,us"
GOOD = [f"N,N,{1024 * m},4096,4096,bf16_r,f32_r,600000,{57.3 * m}" for m in range(1, 6)]
IMPOSSIBLE = "N,N,8192,4096,4096,bf16_r,f32_r,60000000,4.0"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with("importer", tmp_path_factory.mktemp("project"))


def test_the_command_knows_the_importer_and_its_rows_pass_the_gate(project: Path) -> None:
    (project / "gemm.log").write_text("\n".join((HEADER, *GOOD, IMPOSSIBLE)))
    assert "hipblaslt-bench" in run_module(project, "sampling", "import", "--help")
    told = run_module(project, "sampling", "import", "hipblaslt-bench", "gemm.log", "--system", "mi300x")
    assert "kept 5 rows (1 quarantined)" in told
    assert "faster than the physical bound" in told
    assert (project / "data/imported/samples/mi300x-hipblaslt-bench/gemm.parquet").is_file()


def test_the_example_s_own_test_passes(project: Path) -> None:
    run_module(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/sampling/importers/test_hipblaslt_bench.py")
