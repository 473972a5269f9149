"""A built cell: modules run phase by phase as training runs them, gradients into `.grad` and all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from sampling.call import Phase


class _Slot:
    """One module with its own input, and the graph its last forward left."""

    def __init__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.module = module
        self.inputs = inputs
        self.output: torch.Tensor | None = None
        self.output_gradient: torch.Tensor | None = None

    def forward(self) -> None:
        self.output = self.module(*self.inputs)
        if self.output_gradient is None and self.output.dim() > 0:
            self.output_gradient = torch.randn_like(self.output)

    @property
    def hidden(self) -> torch.Tensor:
        return self.inputs[0]

    def gradients(self) -> list[torch.Tensor] | None:
        return None if self.output_gradient is None else [self.output_gradient]


class ModuleWorkload:
    """Times `modules` in turn: distinct weights, detached from one another.

    With `keeps_graph` one forward serves every backward; a module that must see each forward (DDP) sets it False.
    `context` surrounds forward and backward (vocabulary-parallel loss needs one).
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        make_inputs: Callable[[], tuple[torch.Tensor, ...]],
        *,
        keeps_graph: bool = True,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._slots = [_Slot(module, make_inputs()) for module in modules]
        self._keeps_graph = keeps_graph
        self._context = context
        self._turn = 0
        self._weight_groups: list[dict[str, Any]] = []

    @property
    def _slot(self) -> _Slot:
        return self._slots[self._turn % len(self._slots)]

    def prepare(self, phase: Phase) -> None:
        self._turn += 1
        slot = self._slot
        slot.hidden.grad = None
        if phase == "forward":
            # the last graph is let go untimed, as a step lets its activations go in backward
            slot.output = None
            return
        halves = phase in ("backward_input", "backward_weight")
        if slot.output is None or halves or not self._keeps_graph:
            with self._context():
                slot.forward()
        for weight in slot.module.parameters():
            if phase != "backward_accumulate":
                weight.grad = None
            elif weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        if phase == "backward_weight":
            with self._context():
                self._backward_input(slot)

    def run(self, phase: Phase) -> None:
        slot = self._slot
        with self._context():
            if phase == "forward":
                slot.forward()
            elif phase == "backward_input":
                self._backward_input(slot)
            elif phase == "backward_weight":
                stage_backward_weight(slot.module.parameters(), self._weight_groups)
            else:
                assert slot.output is not None
                torch.autograd.backward(slot.output, slot.output_gradient, retain_graph=self._keeps_graph)

    def _backward_input(self, slot: _Slot) -> None:
        assert slot.output is not None
        _, self._weight_groups = stage_backward_input(
            [slot.output], slot.gradients(), [slot.hidden], slot.module.parameters()
        )
        slot.output = None
