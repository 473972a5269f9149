"""Matrix product of a linear layer: y[m, n] = x[m, k] · W[n, k]ᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.call import Phase, register
from sampling.operators.base import WITH_WEIGHTS, Operator

if TYPE_CHECKING:
    import torch

    from sampling.operators.workload import AutogradWorkload


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm(Operator):
    """Any linear layer: m tokens, n output features, k input features.

    Backward-input is [m, n]·[n, k], backward-weight [n, m]·[m, k]; each the forward's FLOPs 2·m·n·k.
    """

    NAME: ClassVar[str] = "gemm"
    KIND: ClassVar[str] = "gemm"
    PHASES: ClassVar[tuple[Phase, ...]] = WITH_WEIGHTS

    m: int
    n: int
    k: int

    def flops(self, phase: Phase) -> float:
        return 2.0 * self.m * self.n * self.k * (2 if phase == "backward" else 1)

    def bytes_moved(self, phase: Phase) -> float:
        one_product = self.item_bytes * (self.m * self.k + self.n * self.k + self.m * self.n)
        return float(one_product * (2 if phase == "backward" else 1))

    def build(self, device: torch.device) -> AutogradWorkload:
        from torch.nn import functional

        from sampling.operators.workload import COPIES, AutogradWorkload, Copy, leaf

        def copy() -> Copy:
            x, weight = leaf(device, self.dtype, self.m, self.k), leaf(device, self.dtype, self.n, self.k)
            return Copy(forward=lambda: functional.linear(x, weight), inputs=[x], weights=[weight])

        return AutogradWorkload([copy() for _ in range(COPIES)])
