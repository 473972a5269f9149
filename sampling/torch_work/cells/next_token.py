"""Final norm, logits and a draw of the next token in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sampling.arithmetic.operator import COPIES
from sampling.cells.next_token import NextToken
from sampling.torch_work.build import builds, products_in, torch_dtype
from sampling.torch_work.cells.layer import make_norm
from sampling.torch_work.workload import PhaseWorkload


@builds(NextToken)
def next_token(call: NextToken, device: torch.device) -> PhaseWorkload:
    return PhaseWorkload([{"forward": _draw_of(call, device)} for _ in range(COPIES)])


def _draw_of(call: NextToken, device: torch.device) -> Callable[[], object]:
    """The draw of a model with weights of its own."""
    dtype = torch_dtype(call.dtype)
    norm = make_norm(call.norm, call.hidden, call.dtype, device)
    head = torch.nn.Linear(call.hidden, call.vocab, bias=False, device=device, dtype=dtype)
    x = torch.randn(call.batch, call.hidden, device=device, dtype=dtype)
    context = products_in(call.dtype)

    def draw() -> object:
        with torch.no_grad(), context():
            return torch.multinomial(head(norm(x)).float().softmax(dim=-1), 1)

    return draw
