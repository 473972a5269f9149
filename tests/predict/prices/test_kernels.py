"""Priors of GPU kernels: their physics."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from predict.prices.kernels import operator_us
from predict.prices.open import SpeedOfLight
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, registry
from sampling.choosing.ranges import VariantRanges
from sampling.choosing.shapes import calls_of, draw_models
from sampling.hardware.cluster import known_hardware, load_cluster
from sampling.operators.attention import Attention
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.memory_bound import CausalSoftmax, LayerNorm, ResidualAdd, RMSNorm, SwiGLU
from sampling.operators.optimizer import AdamW, GradientScale
from sampling.operators.routing import Permute, Router, Unpermute
from sampling.operators.vocabulary import CrossEntropy, Embedding
from tests.made_rows import small_ranges
from tests.predict.prices.devices import gpu_of

GPUS = [name for name in known_hardware() if name != "cpu"]
VARIANTS = VariantRanges(every=2, experts=(8, 64), topk=(2, 4), skews=(0, 1.2), windows=(128, 256), head_dims=(128,))
RANGES = small_ranges(
    dtype="bf16", tokens=(1024, 8192), seq_len=(512, 4096), hidden=(1024, 4096), head_dims=(64, 128), variants=VARIANTS
)


def from_scratch(kind: type[Call]) -> Call:
    """An example of a kind that no model draws."""
    values: dict[str, Any] = {"int": 64, "bool": False, "str": ""}
    named = {"dtype": "bf16", "distribution": "balanced", "tp": 1, "norm": "rms", "stored": "nf4"}
    annotations = {field.name: field.type for field in fields(kind)}
    return kind(**{name: named.get(name, values[str(of)]) for name, of in annotations.items()})


def example_of_each() -> list[Operator]:
    drawn = {call.NAME: call for model in draw_models(RANGES, 4) for call in calls_of(model, 2, with_operators=True)}
    kinds = [kind for kind in registry().values() if issubclass(kind, Operator)]
    calls = [drawn.get(kind.NAME) or from_scratch(kind) for kind in kinds]
    return [call for call in calls if isinstance(call, Operator)]


def is_priced(call: Operator, phase: Phase) -> bool:
    parts = call.parts(phase)
    return not call.OVERHEAD and (not parts or any(isinstance(part.call, Operator) for part in parts))


def with_size(call: Operator, name: str, size: int) -> Operator:
    changes: dict[str, Any] = {name: size}
    return replace(call, **changes)


EXAMPLES = example_of_each()
PRODUCT = Gemm(dtype="bf16", m=4096, n=1024, k=2048)
ATTENTION = Attention(dtype="bf16", batch=2, seq_len=2048, heads=16, kv_heads=4, head_dim=128, causal=True)
EXPERTS = GroupedGemm(dtype="bf16", groups=8, rows=4096, n=1024, k=2048, distribution="balanced")
NORM = RMSNorm(dtype="bf16", tokens=4096, hidden=2048)
CALLS: list[Operator] = [
    PRODUCT,
    ATTENTION,
    EXPERTS,
    NORM,
    BatchedGemm(dtype="bf16", batch=16, m=1024, n=1024, k=128, adds=True),
    Attention(dtype="bf16", batch=2, seq_len=4096, heads=16, kv_heads=16, head_dim=64, causal=True, window=512),
    Attention(dtype="bf16", batch=2, seq_len=512, heads=8, kv_heads=8, head_dim=192, value_dim=128, causal=False),
    GroupedGemm(dtype="bf16", groups=64, rows=512, n=1024, k=2048, distribution="power_law_1.2"),
    GatedDelta(dtype="bf16", batch=2, seq_len=2048, heads=8, value_heads=16, head_dim=128, value_dim=128),
    LayerNorm(dtype="bf16", tokens=4096, hidden=2048),
    SwiGLU(dtype="bf16", tokens=4096, width=2048),
    CausalSoftmax(dtype="bf16", matrices=16, seq_len=1024),
    CrossEntropy(dtype="bf16", tokens=1024, vocab=32000),
    Embedding(dtype="bf16", batch=2, seq_len=1024, vocab=32000, hidden=2048, tp=1, sp=False),
    Router(dtype="bf16", tokens=4096, hidden=2048, experts=64, topk=4),
    Permute(dtype="bf16", tokens=4096, hidden=2048, topk=4, experts=64),
    Unpermute(dtype="bf16", tokens=4096, hidden=2048, topk=4, experts=64),
    AdamW(dtype="fp32", parameters=10**8, tensors=100, tp=1),
    GradientScale(dtype="fp32", parameters=10**8, tensors=100),
]


@pytest.mark.parametrize("hardware", GPUS)
def test_every_operator_has_a_time_and_a_width_in_each_of_its_phases(hardware: str) -> None:
    gpu = gpu_of(hardware)
    for call in EXAMPLES:
        for phase in call.PHASES:
            if is_priced(call, phase):
                median_us, width = operator_us(call, phase, gpu)
                assert 0 < median_us < math.inf, (call, phase)
                assert 0.1 < width < 1.5, (call, phase)


@pytest.mark.parametrize("hardware", GPUS)
def test_nothing_is_faster_than_the_speed_of_light(hardware: str) -> None:
    gpu = gpu_of(hardware)
    boundless = replace(gpu, efficiency=dict.fromkeys(gpu.efficiency, 1.0))
    for call in (*CALLS, *(replace(PRODUCT, m=64 << shift) for shift in range(10))):
        for phase in call.PHASES:
            peak = gpu.peak_flops_per_us("fp32" if call.NAME == "router" else call.dtype)
            bound_us = max(call.executed_flops(phase) / peak, call.least_bytes(phase) / gpu.bytes_per_us())
            assert operator_us(call, phase, boundless)[0] > bound_us, (call, phase)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.NAME)
@pytest.mark.parametrize("hardware", ["a100-80gb", "h100-sxm", "b200"])
def test_twice_a_size_never_costs_less(call: Operator, hardware: str) -> None:
    gpu = gpu_of(hardware)
    sizes = {name: value for name, value in call.fields().items() if type(value) is int and value > 1}
    for name, size in sizes.items():
        for phase in call.PHASES:
            smaller, larger = (with_size(call, name, size * factor) for factor in (1, 2))
            assert operator_us(larger, phase, gpu)[0] >= operator_us(smaller, phase, gpu)[0], (name, phase)


def test_a_kernel_is_bound_by_the_peak_or_by_the_bandwidth() -> None:
    gpu = gpu_of("h100-sxm")
    stronger = replace(gpu, peak_tflops={dtype: 2 * peak for dtype, peak in gpu.peak_tflops.items()})
    wider = replace(gpu, memory_gb_per_s=2 * gpu.memory_gb_per_s)
    product = Gemm(dtype="bf16", m=16384, n=8192, k=8192)
    stream = ResidualAdd(dtype="bf16", tokens=65536, hidden=8192)
    assert operator_us(product, "forward", gpu)[0] == pytest.approx(
        2 * operator_us(product, "forward", stronger)[0], rel=0.05
    )
    assert operator_us(product, "forward", gpu)[0] == pytest.approx(operator_us(product, "forward", wider)[0], rel=0.02)
    assert operator_us(stream, "forward", gpu)[0] == pytest.approx(
        2 * operator_us(stream, "forward", wider)[0], rel=0.02
    )
    assert operator_us(stream, "forward", gpu) == operator_us(stream, "forward", stronger)


@pytest.mark.parametrize(
    ("knob", "call"),
    [("gemm", Gemm(dtype="bf16", m=8192, n=8192, k=8192)), ("attention", ATTENTION), ("elementwise", NORM)],
)
def test_the_stated_efficiencies_move_the_result(knob: str, call: Operator) -> None:
    gpu = gpu_of("h100-sxm")
    lower = replace(gpu, efficiency={**gpu.efficiency, knob: gpu.efficiency[knob] / 2})
    assert operator_us(call, "forward", lower)[0] > 1.4 * operator_us(call, "forward", gpu)[0]


def test_kernels_of_attention_are_ordered() -> None:
    gpu = gpu_of("h100-sxm")
    best, third, fourth, cudnn, second, flex, triton = (
        operator_us(replace(ATTENTION, kernel=kernel), "forward", gpu)[0]
        for kernel in ("", "fa3", "fa4", "cudnn", "fa2", "flex", "triton")
    )
    assert best == third == fourth == cudnn
    assert second == pytest.approx(1.7 * third)
    assert flex == pytest.approx(second / 0.9)
    assert triton == pytest.approx(2.1 * third)
    ampere = gpu_of("a100-80gb")
    assert operator_us(replace(ATTENTION, kernel="fa2"), "forward", ampere) == operator_us(ATTENTION, "forward", ampere)


def test_flash_attention_2_is_as_fast_on_blackwell_as_its_multiprocessors_and_clock_make_it() -> None:
    """It has none of the instructions of either architecture: 148 SMs at 1.965 GHz over 132 at 1.755."""
    ours, theirs = (
        operator_us(replace(ATTENTION, seq_len=16384, kernel="fa2"), "forward", gpu_of(name))[0]
        for name in ("b200", "h100-sxm")
    )
    assert theirs / ours == pytest.approx(148 * 1.965 / (132 * 1.755), rel=0.05)


@pytest.mark.parametrize("dtype", ["nvfp4", "mxfp4"])
def test_four_bits_gain_less_than_their_peak_and_little_on_small_products(dtype: str) -> None:
    gpu = gpu_of("b200")

    def gain(side: int) -> float:
        of_fp8, of_fp4 = (Gemm(dtype=each, m=side, n=side, k=side) for each in ("fp8", dtype))
        return operator_us(of_fp8, "backward", gpu)[0] / operator_us(of_fp4, "backward", gpu)[0]

    assert gain(512) < gain(2048) < gain(16384) < 2.0
    assert gain(16384) > 1.3


def test_the_largest_magnitude_costs_nvfp4_a_pass_more_than_mxfp4() -> None:
    of_nvfp4, of_mxfp4 = (
        operator_us(Gemm(dtype=dtype, m=8192, n=4096, k=4096), "forward", gpu_of("b200"))[0]
        for dtype in ("nvfp4", "mxfp4")
    )
    assert of_nvfp4 > of_mxfp4


@pytest.mark.parametrize(("head", "slower"), [(64, 1.0), (112, 1.4), (128, 1.4)])
def test_the_backward_in_triton_slows_down_beyond_heads_that_fit_its_registers(head: int, slower: float) -> None:
    gpu = gpu_of("a100-80gb")
    call = replace(ATTENTION, head_dim=head)
    forward, backward = (
        operator_us(replace(call, kernel="triton"), phase, gpu)[0] / operator_us(call, phase, gpu)[0]
        for phase in ("forward", "backward")
    )
    assert backward == pytest.approx(slower * forward)


@pytest.mark.parametrize(("hardware", "ratio"), [("a100-80gb", 3.01), ("h100-sxm", 3.3)])
def test_backward_attention_keeps_its_measured_ratio(hardware: str, ratio: float) -> None:
    gpu, call = gpu_of(hardware), replace(ATTENTION, seq_len=4096)
    backward, forward = (operator_us(call, phase, gpu)[0] for phase in ("backward", "forward"))
    assert backward / forward == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("hardware", ["h100-sxm", "rtx-4090"])
@pytest.mark.parametrize("call", [PRODUCT, EXPERTS], ids=["product", "experts"])
def test_few_rows_of_weights_in_four_bits_cost_their_bytes(hardware: str, call: Gemm | GroupedGemm) -> None:
    large = replace(call, n=8192, k=8192)  # whose time is not that of starting it
    few = replace(large, m=1) if isinstance(large, Gemm) else replace(large, rows=large.groups)
    wide, four_bits = (operator_us(replace(few, kernel=each), "forward", gpu_of(hardware))[0] for each in ("", "w4a16"))
    assert 0.27 < four_bits / wide < 0.45


def test_fp8_and_few_rows_an_expert_are_less_certain_or_efficient() -> None:
    gpu = gpu_of("h100-sxm")
    half, eighth = (operator_us(replace(PRODUCT, dtype=dtype), "forward", gpu) for dtype in ("bf16", "fp8"))
    assert eighth[1] > half[1]
    few, many = (replace(EXPERTS, groups=groups) for groups in (256, 8))
    assert operator_us(few, "forward", gpu)[0] > 1.5 * operator_us(many, "forward", gpu)[0]


def test_the_speed_of_light_takes_the_kernels_of_a_gpu_and_not_of_a_cpu() -> None:
    call = replace(PRODUCT, dtype="fp32")
    on_gpu, on_cpu = (
        load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="test", cores=1)
        for hardware in ("h100-sxm", "cpu")
    )
    (time,) = SpeedOfLight().times([(call, "forward")], on_gpu)
    median_us, width = operator_us(call, "forward", on_gpu.gpu)
    assert time.median_us == median_us
    assert time.high_us == pytest.approx(median_us * math.exp(width))
    (time,) = SpeedOfLight().times([(call, "forward")], on_cpu)
    assert time.high_us == 2 * time.median_us


def test_a_frameworks_share_of_the_peak_is_that_of_products_of_many_tokens_and_moves_no_weights_faster() -> None:
    cluster = load_cluster(hardware="b200", nodes=1, gpus_per_node=1, profile="test", cores=1)
    own = cluster.gpu.efficiency["gemm"]

    def stated_us(tokens: int, share: float, phase: Phase = "forward") -> float:
        call = replace(PRODUCT, m=tokens, n=2**14, k=2**14)
        (time,) = SpeedOfLight(gemm_efficiency=share).times([(call, phase)], cluster)
        assert time.median_us > call.bytes_moved(phase) / cluster.gpu.bytes_per_us()
        return time.median_us

    assert stated_us(1, 0.0) == stated_us(1, own) == pytest.approx(stated_us(1, 2 * own), rel=0.05)
    assert stated_us(2**17, 2 * own) == pytest.approx(stated_us(2**17, own) / 2, rel=0.01)
    assert all(stated_us(tokens, 1.0, phase) for tokens in (1, 64, 128, 512) for phase in PRODUCT.PHASES)


# products of experts one by one


def products(groups: int, rows: int = 32768, dtype: str = "bf16", kernel: str = PER_EXPERT) -> GroupedGemm:
    return GroupedGemm(dtype=dtype, groups=groups, rows=rows, n=4096, k=2048, distribution="balanced", kernel=kernel)


def time_us(call: GroupedGemm, phase: Phase = "forward", hardware: str = "h100-sxm") -> float:
    return operator_us(call, phase, gpu_of(hardware))[0]


def test_more_experts_with_as_many_rows_take_longer() -> None:
    few, many = time_us(products(8)), time_us(products(64))
    assert many > few + 56 * 3


def test_fp8_is_quantised_expert_by_expert_outside_of_a_graph() -> None:
    eager, graphed = (time_us(products(32, dtype="fp8", kernel=kernel)) for kernel in (PER_EXPERT, IN_GRAPH))
    assert eager - graphed == pytest.approx(32 * 5 * 4.0)
    assert time_us(products(32)) == time_us(products(32, kernel=IN_GRAPH))


def test_halves_of_the_backward_add_up() -> None:
    call = products(16, dtype="fp8")
    halves: tuple[Phase, Phase] = ("backward_input", "backward_weight")
    assert time_us(call, "backward") == pytest.approx(sum(time_us(call, half) for half in halves))
