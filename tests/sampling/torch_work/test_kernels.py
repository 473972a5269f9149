"""Attention's kernels against a plain one, products of other precisions, and what this machine's software lacks."""

import importlib.util
from dataclasses import replace

import pytest
import torch

from sampling.errors import SkippedError
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.torch_work.build import build, compiled, products_in
from sampling.torch_work.kernels import grouped_product
from sampling.torch_work.kernels.attention import attention_kernel
from sampling.torch_work.kernels.grouped_product import LOOP, LOOP_IN_TORCH, by_loop, kernel_of
from sampling.torch_work.module_workload import ModuleWorkload
from sampling.torch_work.operators.gemm import fp8_products
from tests.sampling.cells.layer_shapes import DENSE_LAYER, MOE_LAYER

CPU = torch.device("cpu")
SHAPE = Attention(dtype="fp32", batch=2, seq_len=12, heads=4, kv_heads=2, head_dim=8, causal=True)


def seen(call: Attention, query: int) -> range:
    if call.causal:
        return range(max(0, query + 1 - (call.window or call.seq_len)), query + 1)
    first = min(max(0, query - call.window // 2), call.seq_len - call.window) if call.window else 0
    return range(first, first + (call.window or call.seq_len))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal": False},
        {"window": 5},
        {"window": 5, "causal": False},
        {"value_dim": 4, "kv_heads": 4},
        {"kernel": "math"},
        {"kernel": "flash"},
        {"kernel": "math", "window": 3},
    ],
)
def test_every_kernel_computes_the_attention_that_the_call_says(changes: dict[str, object]) -> None:
    call = replace(SHAPE, **changes)  # type: ignore[arg-type]
    torch.manual_seed(0)
    query = torch.randn(2, 12, 4, 8)
    key, value = torch.randn(2, 12, call.kv_heads, 8), torch.randn(2, 12, call.kv_heads, call.value_head_dim)
    found = attention_kernel(call, CPU)[0](query, key, value)
    keys = [list(seen(call, position)) for position in range(12)]
    for position, visible in enumerate(keys):
        for head in range(4):
            own = head * call.kv_heads // 4
            scores = torch.einsum("bd,bkd->bk", query[:, position, head], key[:, visible, own]) / 8**0.5
            expected = torch.einsum("bk,bkd->bd", scores.softmax(-1), value[:, visible, own])
            torch.testing.assert_close(found[:, head, position], expected)
    assert sum(map(len, keys)) / 12**2 == pytest.approx(call.seen)


def test_flex_attention_sees_what_the_mask_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    from sampling.torch_work.kernels.attention import _flex

    monkeypatch.setattr("sampling.torch_work.build.BACKEND", "eager")
    call = replace(SHAPE, window=5)
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 12, 4, 8), torch.randn(2, 12, 2, 8), torch.randn(2, 12, 2, 8)
    torch.testing.assert_close(_flex(call, CPU)(query, key, value), attention_kernel(call, CPU)[0](query, key, value))


def test_a_window_says_which_kernel_it_runs_through() -> None:
    assert "mask" in attention_kernel(replace(SHAPE, window=5), CPU)[1]
    assert attention_kernel(replace(SHAPE, window=12), CPU)[1] == ""


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [({}, "flash"), ({"causal": False}, "flash"), ({"kernel": "math"}, "math"), ({"window": 5}, "mask")],
)
def test_attention_names_the_kernel_that_runs(changes: dict[str, object], kernel: str) -> None:
    assert build(replace(SHAPE, **changes), CPU).ran_kernel == kernel  # type: ignore[arg-type, attr-defined]


def test_the_kernel_that_runs_is_asked_for_and_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch, "_fused_sdp_choice", lambda *_, **__: torch.nn.attention.SDPBackend.CUDNN_ATTENTION.value
    )
    monkeypatch.setattr("sampling.torch_work.cells.moe_layer.kernel_of", lambda *_: LOOP_IN_TORCH)
    calls = (SHAPE, DENSE_LAYER, MOE_LAYER)
    kernels = [build(call, CPU).ran_kernel for call in calls]  # type: ignore[attr-defined]
    assert kernels == ["cudnn", "cudnn", f"cudnn + {LOOP_IN_TORCH}"]
    assert "one by one inside torch" in build(MOE_LAYER, CPU).note  # type: ignore[attr-defined]
    monkeypatch.delattr(torch, "_fused_sdp_choice")
    kernels = [build(call, CPU).ran_kernel for call in calls]  # type: ignore[attr-defined]
    assert kernels == ["", "", LOOP_IN_TORCH]


@pytest.mark.parametrize(("reads_back", "kernel"), [(True, LOOP_IN_TORCH), (False, "grouped")])
def test_a_loop_inside_torch_is_no_grouped_kernel(
    reads_back: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[str | int] = ["default"]

    def way(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        if reads_back and modes[-1] == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return x

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    # tensors of the test stay on the CPU; only the name of the device is that of a GPU
    monkeypatch.setattr(torch, "randn", lambda *shape, **_: torch.zeros(shape))
    monkeypatch.setattr(grouped_product, "row_offsets", lambda rows, device: torch.tensor(rows))
    assert kernel_of(way, torch.device("cuda", 0), "bf16") == kernel
    assert modes[-1] == 0


def test_a_loop_of_ours_is_named_so_everywhere() -> None:
    assert kernel_of(by_loop, CPU, "fp32") == LOOP


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        (replace(SHAPE, kernel="cudnn"), "the cudnn kernel does not take"),
        (replace(SHAPE, kernel="triton"), "'triton' is not available"),
        (Gemm(dtype="fp32", m=16, n=16, k=16, kernel="cutlass"), "'cutlass'"),
        (Gemm(dtype="fp8", m=16, n=24, k=16), "multiples of 16"),
        (replace(SHAPE, dtype="fp8"), "dtype 'fp8'"),
    ],
)
def test_what_cannot_be_timed_says_why(call: Attention | Gemm, fragment: str) -> None:
    with pytest.raises(SkippedError, match=fragment):
        build(call, CPU)


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is not None, reason="flash_attn is installed")
def test_flash_attn_without_its_package_names_it() -> None:
    with pytest.raises(SkippedError, match="flash_attn"):
        build(replace(SHAPE, kernel="flash_attn"), CPU)


def test_fp8_products_have_the_shapes_of_a_linear_layers() -> None:
    workload = fp8_products(CPU, 16, 32, 48)
    shapes = [tuple(workload._copies[0][phase]().shape) for phase in ("forward", "backward_input", "backward_weight")]  # type: ignore[attr-defined, index]
    assert shapes == [(16, 32), (16, 48), (32, 48)]


def test_only_the_forward_fp8_product_adds_up_in_less_than_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    fast: list[bool] = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *_, use_fast_accum=False, **__: fast.append(use_fast_accum))
    workload = fp8_products(CPU, 16, 32, 48)
    for phase in ("forward", "backward_input", "backward_weight"):
        workload.run(phase)  # type: ignore[arg-type]
    assert fast == [True, False, False]


def test_an_fp8_product_reads_a_byte_an_element_and_writes_two() -> None:
    call, wide = (Gemm(dtype=dtype, m=16, n=32, k=48) for dtype in ("fp8", "bf16"))
    assert call.bytes_moved("forward") == 16 * 48 + 32 * 48 + 2 * 16 * 32
    halves = call.bytes_moved("backward_input") + call.bytes_moved("backward_weight")
    assert halves == call.bytes_moved("backward")
    assert wide.bytes_moved("backward") == 2 * wide.bytes_moved("forward")


def test_tf32_is_allowed_while_its_products_run_and_not_after() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision  # type: ignore[attr-defined]
    with products_in("tf32")():
        assert matmul.fp32_precision == "tf32"  # type: ignore[attr-defined]
    assert matmul.fp32_precision == before  # type: ignore[attr-defined]


def test_a_compiled_layer_has_no_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.torch_work.build.BACKEND", "eager")
    module = compiled(torch.nn.Linear(4, 4))
    workload = ModuleWorkload([module], lambda: (torch.randn(2, 4, requires_grad=True),), compiled=True)
    with pytest.raises(SkippedError, match="compiled"):
        workload.prepare("backward_input")


def test_a_layer_from_before_compilation_has_the_columns_it_had(two_ranks: object) -> None:
    plain, fused = (call.features("forward", two_ranks) for call in (DENSE_LAYER, replace(DENSE_LAYER, compiled=True)))  # type: ignore[arg-type]
    assert fused.keys() - plain.keys() == {"compiled=yes"}
    assert "compiled" not in plain
