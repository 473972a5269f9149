"""What unfused attention does between its two products: masking and softmax over its scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase
from sampling.catalogue import register

if TYPE_CHECKING:
    import torch

    from sampling.torch_work.workload import AutogradWorkload


@dataclass(frozen=True, kw_only=True, slots=True)
class _OverScores(Operator):
    """Scores [matrices, seq, seq] → the same shape; memory-bound. `matrices` is batch · heads."""

    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD
    COLUMNS: ClassVar[tuple[str, ...]] = ("matrices", "seq_len")
    TENSORS: ClassVar[tuple[float, float]]
    """Tensors of the scores' size that forward and backward must read or write; what is masked need not be read."""

    matrices: int
    seq_len: int

    @property
    def elements(self) -> int:
        return self.matrices * self.seq_len**2

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return self.item_bytes * self.elements * self.TENSORS[0 if phase == "forward" else 1]

    def _workload(self, device: torch.device, apply: Callable[[torch.Tensor], torch.Tensor]) -> AutogradWorkload:
        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        def copy() -> Copy:
            scores = leaf(device, self.dtype, self.matrices, self.seq_len, self.seq_len)
            return Copy(forward=lambda: apply(scores), inputs=[scores])

        return AutogradWorkload([copy() for _ in range(COPIES)])


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Softmax(_OverScores):
    """softmax over the last dimension."""

    NAME: ClassVar[str] = "softmax"
    TENSORS: ClassVar[tuple[float, float]] = (2, 3)

    def build(self, device: torch.device) -> AutogradWorkload:
        return self._workload(device, lambda scores: scores.softmax(dim=-1))


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class CausalSoftmax(_OverScores):
    """Scale, causal mask and softmax in one pass: a fused kernel, here torch.compile's."""

    NAME: ClassVar[str] = "causal_softmax"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 2)

    def build(self, device: torch.device) -> AutogradWorkload:
        return self._workload(device, softmax_of(device, self.seq_len, fused=True))


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskFill(_OverScores):
    """What lies above the diagonal filled with a constant."""

    NAME: ClassVar[str] = "mask_fill"
    TENSORS: ClassVar[tuple[float, float]] = (1.5, 1.5)

    def build(self, device: torch.device) -> AutogradWorkload:
        mask = causal_mask(device, self.seq_len)
        return self._workload(device, lambda scores: scores.masked_fill(mask, -1e4))


def softmax_of(device: torch.device, seq_len: int, *, fused: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Causal softmax of scores [matrices, seq, seq]: scale, mask and softmax compiled into one, or two kernels."""
    import torch

    from sampling.torch_work.compiling import compiled

    mask = causal_mask(device, seq_len)

    def in_one(scores: torch.Tensor) -> torch.Tensor:
        return (scores * 0.125).masked_fill(mask, -torch.inf).softmax(dim=-1)

    def one_by_one(scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(mask, -1e4).softmax(dim=-1)

    return compiled(in_one) if fused else one_by_one


def causal_mask(device: torch.device, seq_len: int) -> torch.Tensor:
    """True [seq, seq] where the key comes after the query."""
    import torch

    return torch.ones(seq_len, seq_len, dtype=torch.bool, device=device).triu(1)
