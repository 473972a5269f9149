"""What a trace alone shows: busy and idle time, classes of kernels, and whether launches bound it."""

import pytest

from predict.measured_runs.explain.naming import class_of
from predict.measured_runs.traces.summary import summary
from sampling.importers.torch_trace.events import Kernel, Op, Trace


def kernel(
    start_us: float, duration_us: float, *, launched_us: float | None = None, name: str = "nvjet_tst", stream: int = 7
) -> Kernel:
    return Kernel(name, duration_us, {}, None, start_us, launched_us, stream)


def test_kernels_that_overlap_are_busy_once_and_count_each() -> None:
    kernels = [
        kernel(0, 10),
        kernel(5, 10, stream=8, name="ncclDevKernel_AllReduce"),
        kernel(40, 5, launched_us=1),
        kernel(20, 1, name="Memcpy DtoD"),
    ]
    found = summary(Trace(ops=[], kernels=kernels))
    assert found is not None
    assert (found.span_us, found.busy_us, found.idle_us, found.kernels) == (45, 20, 25, 3)
    assert found.by_class == {"gemm": 15, "communication": 10, "copy": 1}
    assert not found.launch_bound  # the last kernel was launched long before it ran


def test_a_device_that_waits_for_the_host_is_bound_by_launches() -> None:
    late = [kernel(100.0 * place, 10, launched_us=100.0 * place - 5) for place in range(20)]
    found = summary(Trace(ops=[], kernels=late))
    assert found is not None and found.launch_bound
    assert found.waiting_us == pytest.approx(19 * 85)
    early = [kernel(100.0 * place, 10, launched_us=0) for place in range(20)]
    assert not (summary(Trace(ops=[], kernels=early)) or found).launch_bound


def test_a_device_that_is_asked_for_nothing_stands_still() -> None:
    kernels = [kernel(0, 1000, launched_us=0), kernel(500_000, 1000, launched_us=499_990)]
    found = summary(Trace(ops=[], kernels=kernels))
    assert found is not None
    assert (found.still_us, found.waiting_us, found.launch_bound) == (499_000, 0, False)


def test_a_trace_without_kernels_has_none() -> None:
    assert summary(Trace(ops=[], kernels=[kernel(0, 1, name="Memset (Device)")])) is None


NAMES = {
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_swiGlu_dynBatch_sm100a": "grouped_gemm",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>": "communication",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelI": "attention",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": "kv_cache",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16b": "rms_norm",
    "igemm_wrw_gtcx2_nhwc_bf16_bx0": "convolution",
    "void moe::dev::routing::routingIndicesHistogramKernel": "router",
    "void at::native::vectorized_elementwise_kernel<4, FillFunctor>": "elementwise",
    "Memcpy HtoD (Pinned -> Device)": "copy",
    "my_own_thing": "unknown",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_classes_of_kernels(name: str, expected: str) -> None:
    assert class_of(kernel(0, 1, name=name)) == expected


def test_the_operator_names_a_kernel_whose_own_name_shows_little() -> None:
    above = Op("aten::silu", 0, 1, {})
    inside = Op("aten::mul", 0, 1, {}, parent=above)
    generic = "void at::native::vectorized_elementwise_kernel<4, Functor>"
    assert class_of(Kernel(generic, 1, {}, inside)) == "swiglu"
