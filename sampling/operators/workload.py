"""A built operator: several distinct copies, rotated, so that weights are as cold as in a model of many layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from sampling.call import Phase

COPIES = 2


@dataclass(kw_only=True, slots=True)
class Copy:
    """One copy of an operator: `forward()` makes the output from `inputs` and `weights`."""

    forward: Callable[[], torch.Tensor]
    inputs: Sequence[torch.Tensor] = ()
    weights: Sequence[torch.Tensor] = ()
    output: torch.Tensor | None = field(default=None, init=False)
    output_gradient: torch.Tensor | None = field(default=None, init=False)


class AutogradWorkload:
    """Times the phases of a differentiable operator.

    Each copy's graph is made once and kept, so that a backward can be repeated without its forward.
    `backward` leaves fresh `.grad` tensors (as a step's first microbatch does), `backward_accumulate` adds to existing
    ones; `backward_input` and `backward_weight` are the two halves that zero-bubble schedules part.
    """

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._copies = copies
        self._turn = 0

    def _current(self) -> Copy:
        return self._copies[self._turn % len(self._copies)]

    def prepare(self, phase: Phase) -> None:
        import torch

        self._turn += 1
        copy = self._current()
        if phase == "forward":
            return
        if copy.output is None:
            copy.output = copy.forward()
            copy.output_gradient = torch.randn_like(copy.output)
        if phase == "backward":
            for tensor in (*copy.inputs, *copy.weights):
                tensor.grad = None
        if phase == "backward_accumulate":
            for tensor in copy.inputs:
                tensor.grad = None
            for tensor in copy.weights:
                if tensor.grad is None:
                    tensor.grad = torch.zeros_like(tensor)

    def run(self, phase: Phase) -> None:
        import torch

        copy = self._current()
        if phase == "forward":
            copy.forward()
            return
        assert copy.output is not None
        if phase in ("backward", "backward_accumulate"):
            torch.autograd.backward(copy.output, copy.output_gradient, retain_graph=True)
            return
        targets = copy.inputs if phase == "backward_input" else copy.weights
        torch.autograd.grad(copy.output, list(targets), copy.output_gradient, retain_graph=True)


class StepWorkload:
    """Times something that is done once a training step, such as the optimizer."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step

    def prepare(self, phase: Phase) -> None:
        """Nothing to do: a step leaves its state ready for the next."""

    def run(self, phase: Phase) -> None:
        self._step()


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype for the config's precision name."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]


def leaf(device: torch.device, dtype: str, *shape: int) -> torch.Tensor:
    """A random tensor that collects a gradient; random, since zeros flatter some devices' power limits."""
    import torch

    return torch.randn(*shape, device=device, dtype=torch_dtype(dtype)).mul_(0.05).requires_grad_()
