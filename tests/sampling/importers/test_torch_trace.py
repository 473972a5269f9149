"""Traces of torch's profiler: a real one of a CPU, and a hand-made one of a GPU."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sampling.collectives.kinds import AllReduce
from sampling.errors import UserError
from sampling.importers.table import ImportRequest, Table
from sampling.importers.torch_trace import read
from sampling.importers.torch_trace.stream import stream_trace
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import LayerNorm
from sampling.operators.vocabulary import CrossEntropy, Embedding
from tests.sampling.importers.trace_events import op


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A small model's step as torch's profiler records it on a CPU."""
    import torch
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile

    embedding, linear, norm = torch.nn.Embedding(96, 64), torch.nn.Linear(64, 256), torch.nn.LayerNorm(256)
    ids = torch.randint(96, (2, 16))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as record:
        hidden = norm(linear(embedding(ids)))
        heads = hidden.view(2, 16, 4, 64).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        logits = functional.linear(mixed.transpose(1, 2).reshape(32, 256)[:, :64], embedding.weight)
        functional.cross_entropy(logits, ids.view(-1)).backward()
    path = tmp_path_factory.mktemp("trace") / "cpu.json"
    record.export_chrome_trace(str(path))
    (table,) = read(ImportRequest(path=path, threads=2))
    return table


def test_a_step_on_a_cpu_gives_each_call_both_directions(profiled: Table) -> None:
    attention = Attention(dtype="fp32", batch=2, seq_len=16, heads=4, kv_heads=4, head_dim=64, causal=True)
    calls = {
        Embedding(dtype="fp32", batch=2, seq_len=16, vocab=96, hidden=64, tp=1, sp=False),
        Gemm(dtype="fp32", m=32, n=256, k=64),
        LayerNorm(dtype="fp32", tokens=32, hidden=256),
        attention,
        Gemm(dtype="fp32", m=32, n=96, k=64),
        CrossEntropy(dtype="fp32", tokens=32, vocab=96),
    }
    assert {(row.call, row.phase) for row in profiled.rows} == {
        (call, phase) for call in calls for phase in ("forward", "backward")
    }
    assert (profiled.hardware, profiled.threads) == ("cpu", 2)
    assert all(row.time_us > 0 for row in profiled.rows)


def kernel(name: str, duration: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1e6, "dur": duration, "args": arguments}


def shapes(*dims: list[int], concrete: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"Input Dims": list(dims), "Input type": ["c10::BFloat16"] * len(dims), "Concrete Inputs": list(concrete)}


NODE = "autograd::engine::evaluate_function: "
HEADS = [1, 16, 2048, 128]
GROUP = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 1048576,
    "Out msg nelems": 1048576,
    "Group size": 4,
    "Process Group Ranks": "[0, 1, 8, 9]",
}
EVENTS: list[dict[str, Any]] = [
    op("aten::linear", 0, 100, 1, **shapes([2, 1024, 512], [768, 512])),
    op("aten::mm", 10, 50, 2, **{"Sequence number": 5}, **shapes([2048, 512], [512, 768])),
    kernel("nvjet_gemm", 30.0, **{"External id": 2}),
    op(
        "aten::_scaled_dot_product_flash_attention",
        200,
        80,
        3,
        **{"Sequence number": 6},
        **shapes(HEADS, HEADS, HEADS, concrete=("", "", "", "0.", "True", "False")),
    ),
    op("aten::_flash_attention_forward", 210, 40, 4),
    op("cudaLaunchKernel", 215, 5, 0) | {"cat": "cuda_runtime", "args": {"correlation": 77}},
    kernel("flash_fwd_kernel", 40.0, correlation=77),
    op(NODE + "ScaledDotProductFlashAttentionBackward0", 400, 90, 5, **{"Sequence number": 6}),
    op("aten::_flash_attention_backward", 410, 40, 6),
    kernel("flash_bwd_dot", 5.0, **{"External id": 6}),
    kernel("flash_bwd_kernel", 95.0, **{"External id": 6}),
    op(NODE + "MmBackward0", 500, 90, 7, **{"Sequence number": 5}),
    op("aten::mm", 510, 20, 8, **shapes([2048, 768], [768, 512])),
    op("aten::mm", 540, 20, 9, **shapes([768, 2048], [2048, 512])),
    kernel("nvjet_gemm", 31.0, **{"External id": 8}),
    kernel("nvjet_gemm", 33.0, **{"External id": 9}),
    op("record_param_comms", 700, 10, 10, **GROUP),
    kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 60.0, **{"External id": 10}),
    op("aten::copy_", 800, 10, 11, **shapes([2048, 512])),
    kernel("copy", 6.0, **{"External id": 11}),
]
DEVICE = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}] * 8


def put(tmp_path: Path, content: Any, name: str = "gpu.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return path


def test_kernels_of_a_gpu_are_summed_into_calls(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS, "deviceProperties": DEVICE}).encode()))
    (table,) = read(ImportRequest(path=path))
    product = Gemm(dtype="bf16", m=2048, n=768, k=512)
    attention = Attention(dtype="bf16", batch=1, seq_len=2048, heads=16, kv_heads=16, head_dim=128, causal=True)
    assert {(row.call, row.phase): row.time_us for row in table.rows} == {
        (product, "forward"): 30.0,
        (product, "backward"): 64.0,
        (attention, "forward"): 40.0,
        (attention, "backward"): 100.0,
        (AllReduce(size_bytes=2_097_152, ranks=4, ranks_per_node=2), "forward"): 60.0,
    }
    assert (table.hardware, table.threads) == ("h100-sxm", 0)
    assert table.remarks[0].startswith("2 % of the kernels' time left out")


def test_a_recomputed_forward_inside_a_checkpoints_backward_counts_as_a_forward(tmp_path: Path) -> None:
    inside = [op(NODE + "CheckpointFunctionBackward", -10, 2000, 99), *EVENTS]
    (table,) = read(ImportRequest(path=put(tmp_path, {"traceEvents": inside, "deviceProperties": DEVICE})))
    assert len(table.rows) == 5


def test_a_forward_that_a_node_recomputes_is_no_part_of_its_backward(tmp_path: Path) -> None:
    first, second = shapes([64, 32], [32, 16]), shapes([64, 16], [16, 32])
    events = [
        op("aten::mm", 0, 10, 1, **{"Sequence number": 5}, **first),
        op(NODE + "MmBackward0", 100, 90, 2, **{"Sequence number": 5}),
        op("aten::mm", 110, 50, 3, **{"Sequence number": 9}, **first),  # with a number of its own: of a forward
        op("aten::mm", 170, 15, 4, **second),
    ]
    (table,) = read(ImportRequest(path=put(tmp_path, {"traceEvents": events})))
    assert sorted((row.phase, row.time_us) for row in table.rows) == [
        ("backward", 40.0),
        ("forward", 10.0),
        ("forward", 50.0),
    ]


def test_events_of_any_layout_are_read_alike(tmp_path: Path) -> None:
    many = [dict(event, ts=turn) for turn in range(400) for event in EVENTS[:3]]
    many[5]["name"] = 'aten::},{"'
    texts = (json.dumps(many), json.dumps(many, indent=1), json.dumps([{"args": {}, **event} for event in many]))
    for place, text in enumerate(texts):
        path = tmp_path / f"{place}.json"
        path.write_text(f'{{"traceEvents": {text}, "after": {{"a": [1]}}}}')
        header: dict[str, Any] = {}
        assert list(stream_trace(path, most_bytes=10**9, header=header)) == many
        assert header["after"] == {"a": [1]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"traceEvents": []}, "is empty: it holds no operators or kernels"),
        ({}, "it is empty"),
        ([], "it is empty"),
        ({"events": []}, "has no traceEvents"),
        ({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}]}, "not as torch's profiler writes"),
        ({"traceEvents": [op("aten::copy_", 0, 1, 1, **shapes([2, 2]))]}, "none of its 1 operators is a call of ours"),
        ({"traceEvents": EVENTS}, "not named.*--system"),
    ],
)
def test_a_bad_trace_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as failure:
        read(ImportRequest(path=put(tmp_path, content)))
    assert "gpu.json" in str(failure.value)


def test_a_trace_cut_short_or_empty_is_named(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": EVENTS}).encode()
    for name, content in (("cut.json", whole[:500]), ("cut.json.gz", gzip.compress(whole)[:100]), ("empty.json", b"")):
        (tmp_path / name).write_bytes(content)
        why = "it is empty" if not content else ""
        with pytest.raises(UserError, match=rf"{name}: cannot be read as a trace \({why}"):
            read(ImportRequest(path=tmp_path / name))
    with pytest.raises(UserError, match=r"nothing\.json: there is no such file or folder"):
        read(ImportRequest(path=tmp_path / "nothing.json"))
    with pytest.raises(UserError, match="PATH: missing"):
        read(ImportRequest(path=None))
