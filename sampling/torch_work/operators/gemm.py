"""Matrix products in torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from sampling.arithmetic.operator import COPIES
from sampling.errors import SkippedError
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.torch_work.build import builds, fp8_dtype, products_in
from sampling.torch_work.workload import (
    AutogradWorkload,
    Copy,
    PhaseWorkload,
    autograd_workload,
    leaf,
    refuse_named_kernel,
)

if TYPE_CHECKING:
    from sampling.call import Phase


MULTIPLE = 16
"""Every size of an fp8 product must be a multiple of it (torch._scaled_mm)."""
LEAST_CAPABILITY = (8, 9)
"""Compute capability of the first NVIDIA devices that multiply fp8 matrices (Ada)."""


def fp8_products(device: torch.device, m: int, n: int, k: int) -> PhaseWorkload:
    """The three products of a linear layer [m, k] → [m, n]. Raises SkippedError if the device or a size rules them out."""
    _refuse(device, m, n, k)
    return PhaseWorkload([_copy(device, m, n, k) for _ in range(COPIES)])


def _refuse(device: torch.device, m: int, n: int, k: int) -> None:
    if any(size % MULTIPLE for size in (m, n, k)):
        raise SkippedError(f"gemm: fp8 products of {m}×{n}×{k} need sizes that are multiples of {MULTIPLE}")
    if device.type == "cuda" and torch.version.cuda and torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        raise SkippedError(f"gemm: {torch.cuda.get_device_name(device)} does not multiply fp8 matrices")


def _copy(device: torch.device, m: int, n: int, k: int) -> dict[Phase, Callable[[], object]]:
    x, weight, gradient = (_random(device, *shape) for shape in ((m, k), (n, k), (m, n)))
    one = torch.ones((), device=device)
    product = partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    # only the forward product adds up in less than fp32, as in fp8 training (defaults of torchao's Float8LinearConfig and of
    # Transformer Engine)
    # the right-hand matrix is column-major; a training step keeps the transposed copies that this needs
    forward = partial(product, x, weight.t(), use_fast_accum=True)
    backward_input = partial(product, gradient, _by_columns(weight))
    backward_weight = partial(product, gradient.t().contiguous(), _by_columns(x))

    def backward() -> None:
        backward_input()
        backward_weight()

    return {
        "forward": forward,
        "backward": backward,
        "backward_input": backward_input,
        "backward_weight": backward_weight,
    }


def _random(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch.bfloat16).to(fp8_dtype())


def _by_columns(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.t().contiguous().t()


@builds(Gemm)
def gemm(call: Gemm, device: torch.device) -> AutogradWorkload | PhaseWorkload:
    refuse_named_kernel(call.NAME, call.kernel)
    if call.dtype == "fp8":
        return fp8_products(device, call.m, call.n, call.k)
    return autograd_workload(
        device, call.dtype, functional.linear, inputs=[(call.m, call.k)], weights=[(call.n, call.k)]
    )


@builds(BatchedGemm)
def batched_gemm(call: BatchedGemm, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        left = leaf(device, call.dtype, call.batch, call.m, call.k)
        right = leaf(device, call.dtype, call.batch, call.k, call.n)
        if not call.adds:
            return Copy(forward=lambda: torch.bmm(left, right), inputs=[left, right])
        # with beta = 0 it is never read, as attention's scores start from an empty buffer
        onto = torch.empty(call.batch, call.m, call.n, device=device, dtype=left.dtype)
        forward = lambda: torch.baddbmm(onto, left, right, beta=0.0, alpha=call.k**-0.5)  # noqa: E731
        return Copy(forward=forward, inputs=[left, right])

    return AutogradWorkload(copy, context=products_in(call.dtype))
