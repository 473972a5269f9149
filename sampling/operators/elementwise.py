"""Memory-bound operators of a transformer layer: activations, rotary embedding, residual add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase
from sampling.catalogue import register

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sampling.torch_work.workload import AutogradWorkload


@dataclass(frozen=True, kw_only=True, slots=True)
class _Elementwise(Operator):
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    TENSORS: ClassVar[tuple[int, int]]
    """Tensors of `elements` that forward and backward must read or write."""

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0 * self.item_bytes * self.elements * self.TENSORS[0 if phase == "forward" else 1]


def _workload(
    device: torch.device, dtype: str, shape: tuple[int, ...], inputs: int, apply: Callable[..., torch.Tensor]
) -> AutogradWorkload:
    from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

    def copy() -> Copy:
        tensors = [leaf(device, dtype, *shape) for _ in range(inputs)]
        return Copy(forward=lambda: apply(*tensors), inputs=tensors)

    return AutogradWorkload([copy() for _ in range(COPIES)])


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class SwiGLU(_Elementwise):
    """silu(gate) · up for two tensors [tokens, width] (Shazeer, arXiv 2002.05202)."""

    NAME: ClassVar[str] = "swiglu"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")
    TENSORS: ClassVar[tuple[int, int]] = (3, 5)

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width

    def build(self, device: torch.device) -> AutogradWorkload:
        from torch.nn import functional

        shape = (self.tokens, self.width)
        return _workload(device, self.dtype, shape, 2, lambda gate, up: functional.silu(gate) * up)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gelu(_Elementwise):
    """x·Φ(x) over [tokens, width]."""

    NAME: ClassVar[str] = "gelu"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "width")
    TENSORS: ClassVar[tuple[int, int]] = (2, 3)

    tokens: int
    width: int

    @property
    def elements(self) -> int:
        return self.tokens * self.width

    def build(self, device: torch.device) -> AutogradWorkload:
        from torch.nn import functional

        return _workload(device, self.dtype, (self.tokens, self.width), 1, functional.gelu)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class ResidualAdd(_Elementwise):
    """x + y over [tokens, hidden]. Its backward hands the gradient on, so it costs no pass of its own."""

    NAME: ClassVar[str] = "residual_add"
    COLUMNS: ClassVar[tuple[str, ...]] = ("tokens", "hidden")
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward",)
    TENSORS: ClassVar[tuple[int, int]] = (3, 0)

    tokens: int
    hidden: int

    @property
    def elements(self) -> int:
        return self.tokens * self.hidden

    def build(self, device: torch.device) -> AutogradWorkload:
        return _workload(device, self.dtype, (self.tokens, self.hidden), 2, lambda x, y: x + y)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class RoPE(_Elementwise):
    """Rotary position embedding of [batch, seq, heads, head_dim] (Su et al., arXiv 2104.09864)."""

    NAME: ClassVar[str] = "rope"
    COLUMNS: ClassVar[tuple[str, ...]] = ("batch", "seq_len", "heads", "head_dim")
    TENSORS: ClassVar[tuple[int, int]] = (2, 2)

    batch: int
    seq_len: int
    heads: int
    head_dim: int

    @property
    def elements(self) -> int:
        return self.batch * self.seq_len * self.heads * self.head_dim

    def build(self, device: torch.device) -> AutogradWorkload:
        cosine, sine = rotary_table(device, self.dtype, self.seq_len, self.head_dim)
        shape = (self.batch, self.seq_len, self.heads, self.head_dim)
        return _workload(device, self.dtype, shape, 1, lambda x: rotate(x, cosine, sine))


def rotary_table(device: torch.device, dtype: str, seq_len: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [seq, 1, head_dim] of the rotary angles, base 10,000."""
    import torch

    from sampling.torch_work.workload import torch_dtype

    inverse = 10_000.0 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), inverse)
    both = torch.cat([angles, angles], dim=-1).unsqueeze(1)
    return both.cos().to(torch_dtype(dtype)), both.sin().to(torch_dtype(dtype))


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of the last dimension of x [batch, seq, heads, head_dim]."""
    import torch

    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine
