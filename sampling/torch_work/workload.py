"""Workloads of operators: several distinct copies, run in turn, so that weights are as cold as in a model of many layers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from sampling.arithmetic.operator import COPIES
from sampling.call import Phase
from sampling.errors import SkippedError
from sampling.torch_work.build import Context, products_in, torch_dtype

COLD_BYTES = 2**26
"""Bytes written to push everything else out of a core's share of the last-level cache."""


@dataclass(kw_only=True, slots=True)
class Copy:
    """One copy of an operator: `forward()` makes the output from `inputs` and `weights`."""

    forward: Callable[[], torch.Tensor]
    inputs: Sequence[torch.Tensor] = ()
    weights: Sequence[torch.Tensor] = ()
    output: torch.Tensor | None = field(default=None, init=False)
    output_gradient: torch.Tensor | None = field(default=None, init=False)

    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.inputs, *self.weights))


class AutogradWorkload:
    """The phases of a differentiable operator, on COPIES of what `make_copy` makes.

    Each copy's graph is made once and kept, so that a backward can be repeated without its forward.
    `backward` leaves fresh `.grad` tensors (as a step's first microbatch does), `backward_accumulate` adds to existing
    ones; `backward_input` and `backward_weight` are the two halves that zero-bubble schedules separate.
    `context` surrounds forward and backward; `ran_kernel` names the kernel that computes the operator, of several, and `note`
    names it to the user.
    """

    def __init__(
        self, make_copy: Callable[[], Copy], *, context: Context = nullcontext, note: str = "", ran_kernel: str = ""
    ) -> None:
        self._copies = [make_copy() for _ in range(COPIES)]
        self._context = context
        self._turn = 0
        self.note = note
        self.ran_kernel = ran_kernel

    @property
    def inputs(self) -> Sequence[torch.Tensor]:
        """The input tensors of one copy."""
        return self._copies[0].inputs

    def _current(self) -> Copy:
        return self._copies[self._turn % len(self._copies)]

    def rotates_through(self, cache_bytes: float) -> bool:
        """Whether the other copies displace one from a cache of this size before its next turn."""
        others = [copy.size_bytes() for copy in self._copies[1:]]
        return sum(others) >= 2 * cache_bytes

    def forget(self) -> None:
        """Drop every graph, so that the next backward follows a forward on the current stream."""
        for copy in self._copies:
            copy.output = None
            for tensor in (*copy.inputs, *copy.weights):
                tensor.grad = None

    def prepare(self, phase: Phase) -> None:
        self._turn += 1
        copy = self._current()
        if phase == "forward":
            return
        if copy.output is None:
            with self._context():
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
        with self._context():
            self._run(phase)

    def _run(self, phase: Phase) -> None:
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


Shape = tuple[int, ...]


def autograd_workload(
    device: torch.device,
    dtype: str,
    apply: Callable[..., torch.Tensor],
    *,
    inputs: Sequence[Shape],
    weights: Sequence[Shape] = (),
    note: str = "",
    ran_kernel: str = "",
) -> AutogradWorkload:
    """`apply(*inputs, *weights)` on random tensors of these shapes."""

    def copy() -> Copy:
        tensors = [leaf(device, dtype, *shape) for shape in (*inputs, *weights)]
        return Copy(forward=lambda: apply(*tensors), inputs=tensors[: len(inputs)], weights=tensors[len(inputs) :])

    return AutogradWorkload(copy, context=products_in(dtype), note=note, ran_kernel=ran_kernel)


class StepWorkload:
    """Something that is done once a training step, such as the optimizer."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step

    def prepare(self, phase: Phase) -> None:
        """Nothing to do: a step leaves its state ready for the next."""

    def run(self, phase: Phase) -> None:
        self._step()


class PhaseWorkload:
    """Functions that are the phases themselves, one mapping for each copy."""

    def __init__(self, copies: Sequence[Mapping[Phase, Callable[[], object]]]) -> None:
        self._copies = copies
        self._turn = 0

    def forget(self) -> None:
        """Nothing to do: there is no graph."""

    def prepare(self, phase: Phase) -> None:
        self._turn += 1

    def run(self, phase: Phase) -> None:
        self._copies[self._turn % len(self._copies)][phase]()


class ColdWorkload(StepWorkload):
    """A `StepWorkload` whose data and machine code a step's other work has pushed out of a CPU's caches before it comes again; the
    timer of a GPU flushes caches itself."""

    def __init__(self, step: Callable[[], object], device: torch.device) -> None:
        super().__init__(step)
        self._scratch = torch.empty(COLD_BYTES if device.type == "cpu" else 0, dtype=torch.int8)

    def prepare(self, phase: Phase) -> None:
        self._scratch.add_(1)


def leaf(device: torch.device, dtype: str, *shape: int) -> torch.Tensor:
    """A random tensor that collects a gradient; random, since zeros draw less power on some devices."""
    return torch.randn(*shape, device=device, dtype=torch_dtype(dtype)).mul_(0.05).requires_grad_()


def refuse_named_kernel(operator: str, kernel: str) -> None:
    """Raise SkippedError for a kernel that an imported measurement names: torch chooses its own, which may differ."""
    if kernel:
        raise SkippedError(f"{operator}: kernel {kernel!r} is not one that this sampler can ask torch for")
