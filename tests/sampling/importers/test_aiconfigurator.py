"""aiconfigurator-core: found without being imported, read from its forms, one collection chosen."""

import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sampling.collectives.kinds import AllGather, CustomAllReduce
from sampling.errors import ConfigError, SamplesError
from sampling.importers import aiconfigurator as aiconfigurator_files
from sampling.importers.aiconfigurator import PINNED, read, version_key
from sampling.importers.table import ImportRequest, Table
from sampling.operators.attention import Attention, DecodeAttention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import Gemm

TREE = "aiconfigurator_core/systems/data/h100_sxm"
GEMM = {"gemm_dtype": "bfloat16", "m": 4096, "n": 4096, "k": 4096, "kernel_source": "linear", "latency": 0.25}
ATTENTION = {
    "attn_dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "step": 0,
    "batch_size": 2,
    "isl": 1024,
    "num_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "window_size": 0,
    "kernel_source": "fa3",
    "latency": 0.1,
}
MOE = {
    "moe_dtype": "bfloat16",
    "num_tokens": 64,
    "hidden_size": 2048,
    "inter_size": 768,
    "topk": 8,
    "num_experts": 128,
    "moe_tp_size": 1,
    "moe_ep_size": 2,
    "distribution": "balanced",
    "kernel_source": "triton",
    "latency": 0.5,
}
NCCL = {
    "op_name": "all_gather",
    "nccl_dtype": "half",
    "num_gpus": 8,
    "message_size": 4096,
    "kernel_source": "NCCL",
    "latency": 0.02,
}


def put(root: Path, place: str, *rows: dict[str, Any]) -> Path:
    path = root / TREE / f"{place}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
    return path


def tables_of(root: Path, **request: Any) -> dict[str, Table]:
    return {table.name: table for table in read(ImportRequest(path=root, system="h100_sxm", **request))}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    put(tmp_path, "gemm/vllm/0.9.0/gemm_perf", {**GEMM, "latency": 9.0})
    put(tmp_path, "gemm/vllm/0.24.0/gemm_perf", GEMM, {**GEMM, "gemm_dtype": "fp8_block"})
    put(tmp_path, "gemm/sglang/0.30.0/gemm_perf", {**GEMM, "latency": 0.3})
    put(tmp_path, "attention/sglang/0.5.14/context_attention_perf", ATTENTION, {**ATTENTION, "kv_cache_dtype": "fp8"})
    put(tmp_path, "moe/vllm/0.24.0/moe_perf", MOE, {**MOE, "hidden_size": 2688})
    put(tmp_path, "moe/trtllm/1.0.0/moe_perf", {**MOE, "hidden_size": 2688, "kernel_source": "cutlass_nongated"})
    put(tmp_path, "comm/nccl/2.29.2/nccl_perf", NCCL)
    put(tmp_path, "mhc/vllm/0.24.0/mhc_module_perf", {"latency": 1.0})
    return tmp_path


def test_the_newest_version_of_the_first_framework_is_taken_and_the_rest_named(tree: Path) -> None:
    tables = tables_of(tree)
    assert list(tables) == [
        "gemm vllm 0.24.0",
        "context_attention sglang 0.5.14",
        "moe vllm 0.24.0",
        "nccl nccl 2.29.2",
        "other tables",
    ]
    gemm = tables["gemm vllm 0.24.0"]
    assert [(row.call, row.phase, row.time_us) for row in gemm.rows] == [
        (Gemm(dtype="bf16", m=4096, n=4096, k=4096), "forward", 250.0)
    ]
    assert gemm.remarks == ("1 row left out: of dtype fp8_block",)
    assert "mhc_module_perf (1)" in tables["other tables"].remarks[0]
    assert "gemm sglang 0.30.0" in tables_of(tree, framework="sglang")


def test_columns_become_calls(tree: Path) -> None:
    tables = tables_of(tree)
    attention = tables["context_attention sglang 0.5.14"]
    assert [row.call for row in attention.rows] == [
        Attention(dtype="bf16", batch=2, seq_len=1024, heads=8, kv_heads=2, head_dim=128, causal=True)
    ]
    gated, ungated = (row.call for row in tables["moe vllm 0.24.0"].rows)
    assert isinstance(gated, ExpertMLP) and isinstance(ungated, ExpertMLP)
    assert (gated.gated, ungated.gated, gated.ep, gated.rows) == (True, False, 2, 256)
    assert tables["nccl nccl 2.29.2"].rows[0].call == AllGather(size_bytes=8192, ranks=8, ranks_per_node=8)


def test_heads_that_share_nothing_and_latent_attention_become_calls(tmp_path: Path) -> None:
    put(tmp_path, "attention/vllm/1.0/context_attention_perf", {**ATTENTION, "num_key_value_heads": 0})
    latent = {"mla_dtype": "bfloat16", **{name: ATTENTION[name] for name in ATTENTION if name != "attn_dtype"}}
    put(tmp_path, "mla/vllm/1.0/context_mla_perf", latent)
    plain = Attention(dtype="bf16", batch=2, seq_len=1024, heads=8, kv_heads=8, head_dim=128, causal=True)
    calls = {name: [row.call for row in table.rows] for name, table in tables_of(tmp_path).items()}
    assert calls["context_attention vllm 1.0"] == [plain]
    assert calls["context_mla vllm 1.0"] == [replace(plain, head_dim=192, value_dim=128)]


def test_a_kernel_is_reported_only_where_one_shape_was_timed_with_several(tmp_path: Path) -> None:
    fast = {**GEMM, "kernel_source": "fast"}
    put(tmp_path, "gemm/vllm/1.0/gemm_perf", GEMM, {**GEMM, "m": 64}, fast)
    assert [row.call.fields()["kernel"] for row in tables_of(tmp_path)["gemm vllm 1.0"].rows] == ["", "", "fast"]
    put(tmp_path, "gemm/vllm/1.0/gemm_perf", GEMM, {**fast, "m": 64})
    assert [row.call.fields()["kernel"] for row in tables_of(tmp_path)["gemm vllm 1.0"].rows] == ["", ""]


def test_the_wheel_reads_as_the_tree_does(tree: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "aiconfigurator_core-0.12.0-cp311-abi3-linux.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted((tree / TREE).glob("**/*.parquet")):
            archive.write(path, path.relative_to(tree))
    assert {name: table.rows for name, table in tables_of(wheel).items()} == {
        name: table.rows for name, table in tables_of(tree).items()
    }


def test_a_table_of_a_wheel_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "aiconfigurator_core-0.12.0-cp311-abi3-linux.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{TREE}/gemm/vllm/0.24.0/gemm_perf.parquet", bytes(100_000_100), compresslevel=1)
    with pytest.raises(SamplesError, match=r"gemm_perf\.parquet.*unpacks to more than the 100 MB that are read"):
        tables_of(wheel)


def test_the_installed_package_is_found_and_never_imported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "aiconfigurator_core" / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tree / "aiconfigurator_core-0.12.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: aiconfigurator-core\nVersion: 0.12.0\n")
    monkeypatch.syspath_prepend(str(tree))
    assert read(ImportRequest(system="h100_sxm"))[0].name == "gemm vllm 0.24.0"
    monkeypatch.setattr(aiconfigurator_files, "DISTRIBUTION", "none-of-this-name")
    with pytest.raises(SamplesError, match=f"not installed.*pip install --no-deps {PINNED}"):
        read(ImportRequest(system="h100_sxm"))


def test_the_pin_is_the_extras() -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras["aiconfigurator"] == [PINNED]


def test_bad_input_is_named(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known here: h100_sxm"):
        read(ImportRequest(path=tree, system="h1000"))
    path = tree / TREE / "gemm/vllm/0.24.0/gemm_perf.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SamplesError, match=r"gemm_perf\.parquet: cannot be read as parquet"):
        tables_of(tree)
    put(tree, "gemm/vllm/0.24.0/gemm_perf", {"latency": 1.0, "kernel_source": "x"})
    with pytest.raises(SamplesError, match="lacks the columns gemm_dtype"):
        tables_of(tree)
    (tmp_path / "empty.whl").write_bytes(b"")
    with pytest.raises(SamplesError, match="cannot be read as a wheel"):
        read(ImportRequest(path=tmp_path / "empty.whl", system="h100_sxm"))
    with pytest.raises(SamplesError, match="no such file"):
        read(ImportRequest(path=tmp_path / "nothing", system="h100_sxm"))


def test_versions_are_ordered_as_releases_are() -> None:
    shuffled = ["1.3.0", "0.5.14", "1.3.0rc20", "0.5.6", "1.3.0rc10", "0.5.6.post2"]
    ordered = ["0.5.6", "0.5.6.post2", "0.5.14", "1.3.0rc10", "1.3.0rc20", "1.3.0"]
    assert sorted(shuffled, key=version_key) == ordered


def test_an_exported_table_of_decode_attention_becomes_calls(tmp_path: Path) -> None:
    row = {
        "framework": "vllm",
        "version": "0.14.0",
        "kernel": "flash",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "b": 32,
    }
    row |= {"kv_len": 1024, "heads": 16, "kv_heads": 4, "head_dim": 128, "window": 0, "time_us": 30.0}
    pd.DataFrame([row, {**row, "kv_dtype": "fp8"}]).to_parquet(tmp_path / "h100_sxm_attention_decode.parquet")
    (table,) = tables_of(tmp_path).values()
    call = DecodeAttention(dtype="bf16", batch=32, keys=1024, heads=16, kv_heads=4, head_dim=128)
    assert [(one.call, one.time_us) for one in table.rows] == [(call, 30.0)]
    assert table.remarks == ("1 row left out: with a quantised key-value cache",)


def test_an_exported_table_of_an_engines_all_reduce_becomes_calls(tmp_path: Path) -> None:
    row = {"framework": "vllm", "version": "0.14.0", "kernel": "vLLM_custom_graph", "dtype": "half", "ngpus": 4}
    row |= {"launch": "graph", "elements": 65_536, "bytes": 131_072, "time_us": 5.8}
    eager = {**row, "launch": "eager", "kernel": "vLLM_custom_eager", "time_us": 30.0}
    pd.DataFrame([row, eager]).to_parquet(tmp_path / "h100_sxm_custom_allreduce.parquet")
    (table,) = tables_of(tmp_path).values()
    call = CustomAllReduce(size_bytes=131_072, ranks=4, ranks_per_node=4)
    assert [(one.call, one.time_us) for one in table.rows] == [(call, 5.8)]
    assert table.remarks == ("1 row left out: launched by the host, whose time they are",)
