"""The torch module that the output-head cell times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from sampling.torch_work.layer_module import make_norm
from sampling.torch_work.tensor_parallel import parallelize_head
from sampling.torch_work.workload import leaf, torch_dtype

if TYPE_CHECKING:
    from sampling.cells.head import OutputHead


class Head(torch.nn.Module):
    """Mean cross-entropy of the logits of x [batch, seq, hidden] against target [batch, seq]."""

    def __init__(self, shape: OutputHead, device: torch.device) -> None:
        super().__init__()
        self.norm = make_norm(shape.norm, shape.hidden, shape.dtype, device)
        options = {"device": device, "dtype": torch_dtype(shape.dtype)}
        self.output = torch.nn.Linear(shape.hidden, shape.vocab, bias=False, **options)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.output(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def make_head(shape: OutputHead, device: torch.device) -> torch.nn.Module:
    return parallelize_head(Head(shape, device), device, shape.tp, shape.sp)


def random_hidden_and_target(shape: OutputHead, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Hidden states that collect a gradient (one rank's share of the sequence with sp), and every token's target."""
    seq_len = shape.seq_len // (shape.tp if shape.sp else 1)
    hidden = leaf(device, shape.dtype, shape.batch, seq_len, shape.hidden)
    return hidden, torch.randint(shape.vocab, (shape.batch, shape.seq_len), device=device)
