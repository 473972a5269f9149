"""Timing on a GPU: kernels that a CPU does not have, events, graphs, and the two states of a real device."""

import time
from dataclasses import replace

import pytest
import torch

from sampling.call import Call, Request
from sampling.choosing.ranges import VariantRanges
from sampling.choosing.shapes import draw_models
from sampling.choosing.tasks import phases_worth_timing
from sampling.errors import SamplesError, SkippedError
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.hardware.this_device import detect_hardware
from sampling.operators.attention import Attention
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.store.sample import Sample
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import TimerSettings
from sampling.torch_work.build import build
from sampling.torch_work.collectives.process_groups import LoneRank
from sampling.torch_work.kernels.grouped_product import by_loop, grouped_product
from tests.expert_calls import expert_mlp
from tests.made_rows import small_ranges
from tests.sampling.cells.layer_shapes import MOE_LAYER

if not torch.cuda.is_available():
    pytest.skip("no GPU here; this times calls with the kernels, events and graphs of one", allow_module_level=True)

SETTINGS = TimerSettings(burst_repeats=7, most_batches=2, sustained_seconds=0.2, seconds=0.02)
VARIANTS = VariantRanges(
    **{"experts": (8, 16), "topk": (1, 4), "skews": (0, 1.2), "windows": (64, 128), "head_dims": (64, 128)},
    **{"kernels": ("flash", "efficient"), "dtypes": ("fp16", "fp8", "tf32"), "compiled": True},
)
SIZES = {"tokens": (512, 1024), "seq_len": (256, 512), "hidden": (512, 1024), "head_dims": (64,), "vocab": (1024, 2048)}
RANGES = small_ranges(dtype="bf16", layers=(1, 1), variants=VARIANTS, **SIZES)


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    try:
        hardware = detect_hardware()
    except SamplesError:
        hardware = "h100-sxm"
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="test")


def timed(call: Call, device: torch.device, cluster: Cluster) -> tuple[list[Sample], list[str]]:
    rows: list[Sample] = []
    notes: list[str] = []
    time_requests(
        [Request(call=call, phases=phases_worth_timing(call))],
        device=device,
        cluster=cluster,
        ranks=LoneRank(),
        session=0,
        deadline_s=time.monotonic() + 600,
        settings=SETTINGS,
        keep=rows.append,
        say=notes.append,
    )
    return rows, notes


def test_both_states_of_a_large_product_are_timed_with_clock_and_launch(device: torch.device, cluster: Cluster) -> None:
    rows, notes = timed(Gemm(dtype="bf16", m=4096, n=8192, k=8192), device, cluster)
    assert not notes
    assert [(row.phase, row.state) for row in rows[:2]] == [("forward", "burst"), ("forward", "sustained")]
    burst, sustained = rows[:2]
    assert not burst.quarantine
    assert sustained.time_us > 0.8 * burst.time_us
    assert burst.launch_us is not None
    assert burst.launch_us < burst.time_us


def test_launching_many_small_kernels_costs_more_than_running_them(device: torch.device, cluster: Cluster) -> None:
    call = expert_mlp(dtype="bf16", tokens=64, hidden=256, inter=256, topk=2, experts=8)
    rows, _ = timed(call, device, cluster)
    forward = next(row for row in rows if (row.phase, row.state) == ("forward", "burst"))
    assert forward.launch_us is not None
    assert forward.launch_us > 0.2 * forward.time_us


def test_experts_have_grouped_kernels(device: torch.device) -> None:
    assert grouped_product(device, "bf16", 512, 256) is not by_loop


@pytest.mark.parametrize("call", draw_models(RANGES, 2)[0].variants, ids=lambda call: call.NAME)
def test_every_drawn_call_runs_or_says_why(call: Call, device: torch.device) -> None:
    try:
        workload = build(call, device)
    except SkippedError as skipped:
        pytest.skip(str(skipped))
    for phase in phases_worth_timing(call):
        for _ in range(3):
            workload.prepare(phase)
            workload.run(phase)
    torch.cuda.synchronize(device)


@pytest.mark.parametrize("kernel", ["flash", "cudnn", "efficient", "math"])
def test_torchs_backends_compute_the_same(kernel: str, device: torch.device) -> None:
    from sampling.torch_work.kernels.attention import attention_kernel

    call = Attention(dtype="bf16", batch=2, seq_len=256, heads=4, kv_heads=4, head_dim=64, causal=True, kernel=kernel)
    query, key, value = (torch.randn(2, 256, 4, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    plain = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.transpose(1, 2).float() for tensor in (query, key, value)), is_causal=True
    )
    try:
        found = attention_kernel(call, device)[0](query, key, value)
    except RuntimeError as error:
        pytest.skip(str(error))
    torch.testing.assert_close(found.float(), plain, atol=3e-2, rtol=3e-2)


def test_memory_that_runs_out_is_noted_and_given_back(device: torch.device, cluster: Cluster) -> None:
    total = torch.cuda.get_device_properties(device).total_memory
    call = GroupedGemm(dtype="bf16", groups=1024, rows=1024, n=total // 2**20 // 8, k=4096, distribution="balanced")
    large = replace(cluster, gpu=replace(cluster.gpu, memory_gib=1e6))
    rows, notes = timed(call, device, large)
    assert not rows
    assert "ran out of memory" in notes[0]
    assert torch.cuda.memory_allocated(device) < 2**31


def test_a_compiled_mixture_is_no_slower_than_an_eager_one(device: torch.device, cluster: Cluster) -> None:
    eager = replace(
        MOE_LAYER,
        dtype="bf16",
        batch=1,
        seq_len=1024,
        hidden=1024,
        heads=16,
        kv_heads=16,
        head_dim=64,
        inter=512,
        experts=8,
    )
    times = []
    for call in (eager, replace(eager, compiled=True)):
        rows, _ = timed(call, device, cluster)
        times.append(next(row.time_us for row in rows if (row.phase, row.state) == ("forward", "sustained")))
    assert times[1] < 1.2 * times[0]
