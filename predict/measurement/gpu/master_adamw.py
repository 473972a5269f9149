"""AdamW on fp32 masters of 16-bit weights, whose gradients are added up in fp32 as each becomes ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW


class MasterAdamW(AdamW):
    """torch's fused AdamW over fp32 copies of `weights`, which take the updated values after each step.

    State: 12 bytes per parameter (master and two moments, fp32) and 4 of gradient; a 16-bit gradient lives only until it is
    added to the fp32 one (Micikevicius et al., arXiv 1710.03740, section 3.1).
    """

    def __init__(self, weights: Iterable[Tensor], *, lr: float) -> None:
        self._weights = list(weights)
        self._masters = [weight.detach().float().requires_grad_() for weight in self._weights]
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.register_post_accumulate_grad_hook(partial(_collect, master))  # type: ignore[no-untyped-call]
        super().__init__(self._masters, lr=lr, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = super().step(closure)
        torch._foreach_copy_(self._weights, self._masters)
        return loss


def _collect(master: Tensor, weight: Tensor) -> None:
    """Move a weight's gradient to its master's, in fp32."""
    if weight.grad is None:
        return
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
