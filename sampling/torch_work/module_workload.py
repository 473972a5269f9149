"""Workloads of cells: torch modules run phase by phase as in training, with gradients in `.grad`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from sampling.call import Phase
from sampling.errors import SkippedError


class _Slot:
    """One module with its own input, and the graph of its last forward."""

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
    """Modules with distinct weights, run in turn.

    With `keeps_graph` one forward serves every backward; it is False for a module that must see each forward (DDP). The
    backward of a `compiled` module is one piece, run once after each forward; the module is compiled here, before any timing.
    `context` surrounds forward and backward, for example for a vocabulary-parallel loss; `ran_kernel` names the kernels that the
    software chose for its parts, and `note` names them to the user.
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        make_inputs: Callable[[], tuple[torch.Tensor, ...]],
        *,
        keeps_graph: bool = True,
        compiled: bool = False,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        note: str = "",
        ran_kernel: str = "",
    ) -> None:
        self.note = note
        self.ran_kernel = ran_kernel
        self._slots = [_Slot(module, make_inputs()) for module in modules]
        self._keeps_graph = keeps_graph and not compiled
        self._compiled = compiled
        self._context = context
        self._turn = 0
        self._weight_groups: list[dict[str, Any]] = []
        if compiled:
            phases: tuple[Phase, ...] = ("forward", "backward")
            for phase in phases * len(self._slots):
                self.prepare(phase)
                self.run(phase)

    @property
    def _slot(self) -> _Slot:
        return self._slots[self._turn % len(self._slots)]

    def forget(self) -> None:
        """Drop every graph, so that the next backward follows a forward on the current stream."""
        for slot in self._slots:
            slot.output = None
            for weight in slot.module.parameters():
                weight.grad = None

    def rotates_through(self, cache_bytes: float) -> bool:
        """Whether the other modules displace one's weights from a cache of this size before its next turn."""
        others = [sum(weight.nbytes for weight in slot.module.parameters()) for slot in self._slots[1:]]
        return sum(others) >= 2 * cache_bytes

    def prepare(self, phase: Phase) -> None:
        halves = phase in ("backward_input", "backward_weight")
        if halves and self._compiled:
            raise SkippedError("the backward of a compiled layer is one piece and has no halves to time")
        self._turn += 1
        slot = self._slot
        slot.hidden.grad = None
        if phase == "forward":
            # the last graph is freed untimed, as a step frees its activations in backward
            slot.output = None
            return
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
