"""Products of fp8 matrices with one scale per tensor, as in an fp8 linear layer without its casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from sampling.arithmetic.operator import COPIES
from sampling.errors import SkippedError
from sampling.torch_work.precision import fp8_dtype
from sampling.torch_work.workload import PhaseWorkload

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
