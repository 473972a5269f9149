"""The end of a model in torch: final norm, output projection, cross-entropy."""

from collections.abc import Callable

import torch
from torch.nn import functional

from sampling.arithmetic.operator import COPIES
from sampling.cells.head import NextToken, OutputHead
from sampling.torch_work.build import builds, products_in, torch_dtype
from sampling.torch_work.cells.layer import make_norm
from sampling.torch_work.collectives.tensor_parallel import loss_context, parallelize_head
from sampling.torch_work.module_workload import ModuleWorkload
from sampling.torch_work.workload import PhaseWorkload, leaf


@builds(OutputHead)
def output_head(call: OutputHead, device: torch.device) -> ModuleWorkload:
    modules = [make_head(call, device) for _ in range(COPIES)]
    context = loss_context(call.tp) if call.tp > 1 else products_in(call.dtype)
    return ModuleWorkload(modules, lambda: random_hidden_and_target(call, device), context=context)


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
    """Hidden states that collect a gradient (one rank's share of the sequence with sp), and the target of every token."""
    seq_len = shape.seq_len // (shape.tp if shape.sp else 1)
    hidden = leaf(device, shape.dtype, shape.batch, seq_len, shape.hidden)
    return hidden, torch.randint(shape.vocab, (shape.batch, shape.seq_len), device=device)


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
