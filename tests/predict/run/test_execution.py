"""Settings of a framework that stand for another one by the device."""

import pytest

from predict.run.execution import CUDNN_IN_TORCH, Execution


@pytest.mark.parametrize(
    ("architecture", "stack", "kernel"),
    [
        ("hopper", "", "cudnn"),
        ("blackwell", CUDNN_IN_TORCH, "cudnn"),
        ("hopper", "2025-07", "fa2"),
        ("ampere", "", "fa2"),
        ("ada", "2026-06", "fa2"),
        ("blackwell-rtx", "2026-06", "fa2"),
        ("cdna4", "2026-06", "fa2"),
    ],
)
def test_torchs_own_attention_is_cudnns_on_data_centre_gpus_since_torch_2_8(
    architecture: str, stack: str, kernel: str
) -> None:
    assert Execution(attention="sdpa", stack=stack).attention_kernel_on(architecture) == kernel


@pytest.mark.parametrize(
    ("clips", "scales", "waited_us"), [(True, False, 107.0), (False, True, 107.0), (False, False, 7.0)]
)
def test_the_optimizers_launches_wait_where_the_host_reads_something_of_the_gradients(
    clips: bool, scales: bool, waited_us: float
) -> None:
    execution = Execution(
        optimizer_launch_us=100.0, step_overhead_us=7, clip_gradients=clips, loss_scaling=scales, cuda_graphs="full"
    )
    assert execution.beside_work_us == waited_us


@pytest.mark.parametrize(("attention", "kernel"), [("best", ""), ("fa3", "fa3"), ("unfused", "unfused")])
def test_other_names_are_kernels_themselves(attention: str, kernel: str) -> None:
    assert Execution(attention=attention).attention_kernel_on("ampere") == kernel
