"""One matrix product per expert over rows sorted by expert: torch's grouped product, or a loop."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise

import torch
from torch.nn import functional

from sampling.torch_work.build import torch_dtype

GroupedProduct = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""x [rows, k], weight [groups, n, k] and the end of each group's rows, int32 [groups] → [rows, n]."""
ALIGNMENT_BYTES = 16
"""Alignment of a matrix's strides that torch's grouped kernels require."""
TRIAL_SIZE = 16
"""Rows and columns of the product that tests whether a kernel runs here."""


def _by_functional(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return functional.grouped_mm(x, weight.transpose(-2, -1), offs=offsets)


def _by_predecessor(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(x, weight.transpose(-2, -1), offs=offsets)


def by_loop(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The groups' products one after the other; reading `offsets` waits for the device."""
    bounds = pairwise([0, *offsets.tolist()])
    return torch.cat([x[start:end] @ own.T for (start, end), own in zip(bounds, weight, strict=True)])


GROUPED: tuple[GroupedProduct, ...] = (_by_functional, _by_predecessor)


def grouped_product(device: torch.device, dtype: str, n: int, k: int, *, traced: bool = False) -> GroupedProduct:
    """The first implementation that runs here, forward and backward, with such widths; `traced` is under torch.compile."""
    item_bytes = torch_dtype(dtype).itemsize
    if any(size * item_bytes % ALIGNMENT_BYTES for size in (n, k)):
        return by_loop
    devices = (device, torch.device("meta")) if traced else (device,)
    return next((way for way in GROUPED if all(_runs(way, on, torch_dtype(dtype)) for on in devices)), by_loop)


@cache
def _runs(way: GroupedProduct, device: torch.device, dtype: torch.dtype) -> bool:
    x = torch.randn(2 * TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype, requires_grad=True)
    weight = torch.randn(2, TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype, requires_grad=True)
    try:
        output = way(x, weight, row_offsets((TRIAL_SIZE, TRIAL_SIZE), device))
        torch.autograd.backward(output, torch.randn_like(output))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return True


LOOP, LOOP_IN_TORCH = "loop", "loop in torch"
NOTES = {
    LOOP: "grouped products run one by one: torch has no grouped kernel for them here",
    LOOP_IN_TORCH: "grouped products run one by one inside torch, which has no grouped kernel for this device or precision",
}


def kernel_of(way: GroupedProduct, device: torch.device, dtype: str) -> str:
    """The kernel that computes the product: LOOP, LOOP_IN_TORCH, or `grouped`; empty on a device where torch does not say."""
    if way is by_loop:
        return LOOP
    if device.type != "cuda":
        return ""
    return LOOP_IN_TORCH if _reads_back(way, device, torch_dtype(dtype)) else "grouped"


@cache
def _reads_back(way: GroupedProduct, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether it waits for the device, as torch's own loop does to read where the groups end, and grouped kernels do not."""
    x = torch.randn(2 * TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype)
    weight = torch.randn(2, TRIAL_SIZE, TRIAL_SIZE, device=device, dtype=dtype)
    offsets = row_offsets((TRIAL_SIZE, TRIAL_SIZE), device)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        way(x, weight, offsets)
    except RuntimeError:
        return True
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return False


def row_offsets(rows: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(list(accumulate(rows)), dtype=torch.int32, device=device)
