"""Attention as its parts, one kernel after the other, which writes its scores to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.composite import Composite
from sampling.arithmetic.operator import FORWARD_BACKWARD
from sampling.call import Counted, Phase
from sampling.catalogue import register
from sampling.operators.gemm import BatchedGemm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax
from sampling.torch_work.precision import products_in

if TYPE_CHECKING:
    import torch

    from sampling.torch_work.workload import AutogradWorkload


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class UnfusedAttention(Composite):
    """Causal softmax(Q·Kᵀ/√d)·V of `matrices` = batch · heads; Q, K and V are [matrices, seq, head_dim].

    With `fused_softmax` mask and softmax are one compiled kernel, else a kernel each.
    """

    NAME: ClassVar[str] = "unfused_attention"
    KIND: ClassVar[str] = "attention"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    batch: int
    seq_len: int
    heads: int
    head_dim: int
    fused_softmax: bool

    @property
    def matrices(self) -> int:
        return self.batch * self.heads

    def parts(self, phase: Phase) -> Sequence[Counted]:
        kinds = (CausalSoftmax,) if self.fused_softmax else (MaskFill, Softmax)
        calls = (
            self._product(n=self.seq_len, k=self.head_dim, adds=True),
            *(kind(dtype=self.dtype, matrices=self.matrices, seq_len=self.seq_len) for kind in kinds),
            self._product(n=self.head_dim, k=self.seq_len, adds=False),
        )
        return tuple(Counted(call=call, phase=phase) for call in calls)

    def _product(self, *, n: int, k: int, adds: bool) -> BatchedGemm:
        return BatchedGemm(dtype=self.dtype, batch=self.matrices, m=self.seq_len, n=n, k=k, adds=adds)

    def build(self, device: torch.device) -> AutogradWorkload:
        import torch

        from sampling.operators.softmax import softmax_of
        from sampling.torch_work.workload import COPIES, AutogradWorkload, Copy, leaf

        softmax = softmax_of(device, self.seq_len, fused=self.fused_softmax)

        def copy() -> Copy:
            shape = (device, self.dtype, self.matrices, self.seq_len, self.head_dim)
            query, key, value = leaf(*shape), leaf(*shape), leaf(*shape)
            onto = torch.empty(self.matrices, self.seq_len, self.seq_len, device=device, dtype=query.dtype)

            def forward() -> torch.Tensor:
                scores = torch.baddbmm(onto, query, key.transpose(1, 2), beta=0.0, alpha=self.head_dim**-0.5)
                return torch.bmm(softmax(scores), value)

            return Copy(forward=forward, inputs=[query, key, value])

        return AutogradWorkload([copy() for _ in range(COPIES)], context=products_in(self.dtype))
