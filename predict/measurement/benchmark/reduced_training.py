"""The reduced run of a memory benchmark: embedding, a few layers of each kind and the head, trained with AdamW.

Its layers are the modules that the sampler times; the gradients are dropped after each step, as torch does by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import EMBEDDING, HEAD, embedding_call, head_call, whole_layer_calls
from sampling.arithmetic.operator import Operator
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.torch_work.build import products_in, torch_dtype
from sampling.torch_work.cells.head import make_head
from sampling.torch_work.cells.layer import make_layer
from sampling.torch_work.cells.moe_layer import make_moe_layer
from sampling.torch_work.collectives.tensor_parallel import loss_context, parallel_embedding

SEED = 0
LEARNING_RATE = 1e-4
Around = Callable[[str], AbstractContextManager[None]]
"""Entered around each unit's forward."""


def _nothing(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class ReducedTraining:
    """One rank's share of the run; with tp > 1 torch.distributed must be initialised, and its default group is the tensor-parallel one."""

    def __init__(self, reduced: TrainingRun, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.units = list(_units(reduced, device))
        self._context = loss_context(reduced.plan.tp) if reduced.plan.tp > 1 else products_in(reduced.precision)
        parameters = self.parameters()
        sharded = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
        plain = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
        # fused AdamW refuses a mix of the two
        self.optimizers = [
            torch.optim.AdamW(group, lr=LEARNING_RATE, fused=True) for group in (sharded, plain) if group
        ]
        ids = torch.randint(reduced.model.vocab, (reduced.batch.global_, reduced.batch.seq_len + 1), device=device)
        rows = torch.split(ids, reduced.batch.micro)
        self.microbatches = [(row[:, :-1].contiguous(), row[:, 1:].contiguous()) for row in rows]

    def parameters(self) -> list[nn.Parameter]:
        """Each parameter once, the table of a tied head too."""
        return list(dict.fromkeys(parameter for _, module in self.units for parameter in module.parameters()))

    def optimizer_state(self) -> list[Tensor]:
        return [
            value
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]

    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters() if parameter.grad is not None]

    def forward(self, index: int, around: Around = _nothing) -> Tensor:
        """The loss of a microbatch."""
        tokens, targets = self.microbatches[index]
        x: Tensor = tokens
        for name, module in self.units:
            with around(name), self._context():
                x = module(x, targets) if name == HEAD else module(x)
        return x

    def forward_backward(self) -> None:
        """Run all microbatches, after dropping the gradients of the step before."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        for index in range(len(self.microbatches)):
            loss = self.forward(index)
            with self._context():
                torch.autograd.backward(loss)
            # a loss that lived on would hold its graph through the next forward
            del loss

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def _units(reduced: TrainingRun, device: torch.device) -> Iterator[tuple[str, nn.Module]]:
    calls, tp, sp = whole_layer_calls(reduced), reduced.plan.tp, reduced.plan.sp
    shape = embedding_call(reduced)
    table = nn.Embedding(shape.vocab, shape.hidden, device=device, dtype=torch_dtype(shape.dtype))
    yield EMBEDDING, parallel_embedding(table, device, tp, sp)
    for kind in reduced.model.kinds():
        yield kind.name, _layer(calls[kind.name], device)
    head = make_head(head_call(reduced), device)
    if reduced.model.tied:
        head.output.weight = table.weight  # type: ignore[union-attr]
    yield HEAD, head


def _layer(call: Operator, device: torch.device) -> nn.Module:
    if isinstance(call, MoELayer):
        return make_moe_layer(call, device)
    assert isinstance(call, DenseLayer)
    return make_layer(call, device)
