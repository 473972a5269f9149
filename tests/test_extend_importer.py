"""An importer is added by one file: the example of `docs/extend.md`, in a copy of the project."""

from __future__ import annotations

from pathlib import Path

from tests.project_copy import own_test, run_modules

HEADER = "transA,transB,M,N,K,d_type,compute_type,hipblaslt-Gflops,us"
GOOD = [f"N,N,{1024 * m},4096,4096,bf16_r,f32_r,600000,{57.3 * m}" for m in range(1, 6)]
IMPOSSIBLE = "N,N,8192,4096,4096,bf16_r,f32_r,60000000,4.0"


def test_the_command_knows_the_importer_and_its_rows_pass_the_gate(project_copy: Path) -> None:
    (project_copy / "gemm.log").write_text("\n".join((HEADER, *GOOD, IMPOSSIBLE)))
    help_text, told, _ = run_modules(
        project_copy,
        ("sampling", "import", "--help"),
        ("sampling", "import", "hipblaslt-bench", "gemm.log", "--system", "mi300x"),
        own_test("tests/sampling/importers/test_hipblaslt_bench.py"),
    )
    assert "hipblaslt-bench" in help_text
    assert "kept 5 rows (1 quarantined)" in told
    assert "faster than the physical bound" in told
    assert (project_copy / "data/imported/samples/mi300x-hipblaslt-bench/gemm.parquet").is_file()
