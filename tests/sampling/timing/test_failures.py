"""Calls that a device cannot run: left out with a note, on all ranks or on none, and sampling goes on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from sampling.call import Call, Phase, Request
from sampling.cells.layer import DenseLayer
from sampling.errors import SkippedError, UserError
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.gemm import Gemm
from sampling.store.sample import Sample
from sampling.timing.failures import failure, fits
from sampling.timing.time_calls import time_requests, untold
from sampling.timing.timer import TimerSettings
from sampling.torch_work.build import build, builds
from sampling.torch_work.collectives.process_groups import LoneRank
from sampling.torch_work.workload import AutogradWorkload, Copy, leaf
from tests.sampling.cells.layer_shapes import DENSE_LAYER

CPU = torch.device("cpu")
SETTINGS = TimerSettings(warmup_repeats=1, least_repeats=2, most_repeats=3, seconds=0.0, attempts=1, most_batches=1)
GOOD = Gemm(dtype="fp32", m=32, n=32, k=32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failing(Gemm):
    """A product that fails when it is built, or in a phase."""

    NAME: ClassVar[str] = "failing"

    where: str
    how: str

    def error(self) -> Exception:
        errors: dict[str, Callable[[str], Exception]] = {
            "memory": torch.OutOfMemoryError,
            "software": SkippedError,
            "torch": RuntimeError,
            "device": torch.AcceleratorError,
            "older torch": lambda words: RuntimeError(f"CUDA error: {words}"),
            "disk": UserError,
            "bug": TypeError,
        }
        return errors[self.how]("words of the error\nand more")


class _FailsInPhase(AutogradWorkload):
    def __init__(self, make_copy: Callable[[], Copy], call: Failing) -> None:
        super().__init__(make_copy)
        self._call = call

    def run(self, phase: Phase) -> None:
        if phase == self._call.where:
            raise self._call.error()
        super().run(phase)


@builds(Failing)
def build_failing(call: Failing, device: torch.device) -> AutogradWorkload:
    if call.where == "build":
        raise call.error()

    def copy() -> Copy:
        x = leaf(device, call.dtype, 4, 4)
        return Copy(forward=lambda: x * 2, inputs=[x])

    return _FailsInPhase(copy, call)


def failing(where: str, how: str) -> Failing:
    return Failing(dtype="fp32", m=8, n=8, k=8, where=where, how=how)


def timed(
    calls: list[Gemm],
    cluster: Cluster,
    ranks: LoneRank | None = None,
    rows: list[Sample] | None = None,
    left_out: Callable[[Call, str], None] = untold,
) -> tuple[list[Sample], list[str]]:
    rows = [] if rows is None else rows
    notes: list[str] = []
    time_requests(
        [Request(call=call, phases=("forward", "backward")) for call in calls],
        device=CPU,
        cluster=cluster,
        ranks=ranks or LoneRank(),
        session=0,
        deadline_s=time.monotonic() + 60,
        settings=SETTINGS,
        keep=rows.append,
        say=notes.append,
        left_out=left_out,
    )
    return rows, notes


@pytest.fixture
def one_rank() -> Cluster:
    return load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=1)


@pytest.mark.parametrize(
    ("how", "where", "phases"),
    [("software", "build", []), ("memory", "forward", []), ("torch", "backward", ["forward"]), ("bug", "forward", [])],
)
def test_a_call_that_fails_is_left_out_and_the_next_is_timed(
    how: str, where: str, phases: list[str], one_rank: Cluster
) -> None:
    reasons: list[tuple[Call, str]] = []
    calls = [replace(failing(where, how), m=m) for m in (8, 16)]
    rows, notes = timed([*calls, GOOD], one_rank, left_out=lambda *each: reasons.append(each))
    assert [row.phase for row in rows if row.call.NAME == "failing"] == phases * 2
    assert [row.phase for row in rows if row.call == GOOD] == ["forward", "backward"]
    message = "ran out of memory" if how == "memory" else "words of the error"
    assert message in notes[0]
    assert [call for call, reason in reasons if message in reason] == calls
    assert notes[-1].startswith("2 calls left out in all: 2 × failing")
    assert len(notes) == 2


@pytest.mark.parametrize("how", ["device", "older torch", "disk"])
def test_an_error_of_the_device_or_of_the_users_ends_the_process(how: str, one_rank: Cluster) -> None:
    with pytest.raises((RuntimeError, UserError)):
        timed([failing("forward", how), GOOD], one_rank)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("CUBLAS_STATUS_NOT_SUPPORTED", "CUBLAS_STATUS_NOT_SUPPORTED"),
        ("HIPBLAS_STATUS_INVALID_VALUE", "HIPBLAS_STATUS_INVALID_VALUE"),
        ("CUBLAS_STATUS_ALLOC_FAILED", "ran out of memory"),
        ("CUBLAS_STATUS_EXECUTION_FAILED", ""),
    ],
)
def test_a_product_that_the_library_refuses_is_left_out_and_a_device_that_fails_in_it_is_not(
    status: str, message: str
) -> None:
    reason = failure(RuntimeError(f"CUDA error: {status} when calling `cublasGemmEx(handle)`"), spans_ranks=False)
    assert message in reason
    assert bool(reason) == bool(message)


def test_phases_timed_before_an_error_of_the_device_are_kept(one_rank: Cluster) -> None:
    rows: list[Sample] = []
    with pytest.raises(torch.AcceleratorError):
        timed([GOOD, failing("backward", "device")], one_rank, rows=rows)
    assert [(row.call.NAME, row.phase) for row in rows] == [
        ("gemm", "forward"),
        ("gemm", "backward"),
        ("failing", "forward"),
    ]


def test_a_failed_call_that_left_the_device_unusable_is_the_one_at_fault(
    one_rank: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead() -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", dead)
    with pytest.raises(torch.AcceleratorError):
        timed([failing("forward", "torch"), GOOD], one_rank)


class BesideAFailingRank(LoneRank):
    """Another rank that runs out of memory in the first call it builds."""

    def __init__(self) -> None:
        self.asked = 0

    def largest(self, value: float) -> float:
        self.asked += 1
        return 1.0 if self.asked == 2 else value


def test_a_call_that_another_rank_cannot_build_is_left_out_here_too(one_rank: Cluster) -> None:
    rows, notes = timed([GOOD, GOOD], one_rank, BesideAFailingRank())
    assert len(rows) == 2
    assert "another rank" in notes[0]


def test_no_phase_is_begun_after_the_deadline(one_rank: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Sample] = []
    now_s = 0.0

    def keep(sample: Sample) -> None:
        nonlocal now_s
        rows.append(sample)
        now_s += 10.0

    monkeypatch.setattr("sampling.timing.time_calls.time.monotonic", lambda: now_s)
    time_requests(
        [Request(call=GOOD, phases=GOOD.PHASES)],
        device=CPU,
        cluster=one_rank,
        ranks=LoneRank(),
        session=0,
        deadline_s=15.0,
        settings=SETTINGS,
        keep=keep,
        say=print,
    )
    assert [row.phase for row in rows] == list(GOOD.PHASES[:2])


def test_a_precision_that_the_device_lacks_is_left_out(one_rank: Cluster) -> None:
    rows, notes = timed([replace(GOOD, dtype="fp8")], one_rank)
    assert not rows
    assert "no fp8 peak" in notes[0]


def test_a_call_larger_than_the_device_is_left_out() -> None:
    gpu = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
    small, large = (replace(GOOD, dtype="bf16", m=2**exponent, n=2**15, k=2**13) for exponent in (12, 20))
    assert fits(small, gpu)
    assert not fits(large, gpu)
    rows, notes = timed([large], gpu)
    assert not rows
    assert "60 % of the memory" in notes[0]


def test_a_cpu_is_not_held_to_the_memory_of_a_device(two_ranks: Cluster) -> None:
    assert fits(replace(GOOD, m=2**30), two_ranks)


def held_bytes(call: Gemm | DenseLayer) -> int:
    """What both copies save for backward, and a gradient for each leaf among it."""
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        workload = build(call, CPU)
        for _ in range(2):
            workload.prepare("backward")
    gradients = sum(tensor.untyped_storage().nbytes() for tensor in saved.values() if tensor.is_leaf)
    return gradients + sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


@pytest.mark.parametrize(
    "call",
    [
        Gemm(dtype="fp32", m=512, n=1024, k=768),
        replace(DENSE_LAYER, seq_len=64, hidden=256, kv_heads=4, head_dim=64, ffn=1024),
    ],
)
def test_the_estimate_covers_the_tensors_that_are_held(call: Gemm | DenseLayer) -> None:
    held = held_bytes(call)
    assert held <= call.resident_bytes() <= 4 * held
