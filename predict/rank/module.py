"""A module of a layer: the operators and exchanges of its forward, from which those of its backward follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from predict.model.spec import LayerKind
from predict.rank.blocks import Calls, OverlappedCommunication
from predict.rank.share import RankShare
from sampling.arithmetic.operator import Operator, counted_in
from sampling.call import Counted, Phase
from sampling.operators.memory_bound import Stream

Works = tuple[tuple[Operator, float], ...]
"""Operators of a forward, each with the number of times that it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """Communication of a module with one kind of group, forward and backward.

    The shares say how much of the hiding work's time can hide it (0: none), `most` how much of it can be hidden. `hidden_by`
    names the modules that hide it; empty for the module itself.
    """

    heading: str
    forward: Calls
    backward: Calls
    forward_share: float = 0.0
    backward_share: float = 0.0
    hidden_by: tuple[str, ...] = ()
    most: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """`name` is Megatron's name, by which selective recomputation chooses modules; `part_of` is the module that contains it."""

    name: str
    works: Works
    exchanges: tuple[Exchange, ...] = ()
    part_of: str = ""
    backward: Literal["whole", "input", "weights", "none"] = "whole"
    """What its backward computes: all; of frozen weights the gradient of its input alone; of an input without one that of its weights;
    nothing."""

    def calls(self, phase: Phase) -> Calls:
        """The operators of a phase; those without weights do all of their backward in its input half."""
        if phase == "forward" or self.backward == "whole":
            return counted_in(phase, self.works)
        if self.backward == "weights":
            return () if phase == "backward_input" else counted_in("backward_weight", self.works)
        if self.backward == "none" or phase == "backward_weight":
            return ()
        return counted_in("backward_input", self.works)

    def frozen(self, *, needs_input: bool) -> Module:
        """The module with weights that are not trained; its exchanges in backward are those of gradients that it does not have where
        nothing needs the gradient of its input. One whose input takes no gradient anyway has no backward."""
        if needs_input and self.backward in ("whole", "input"):
            return replace(self, backward="input")
        return replace(self, backward="none", exchanges=tuple(replace(one, backward=()) for one in self.exchanges))

    def is_among(self, names: Sequence[str]) -> bool:
        return self.name in names or (bool(self.part_of) and self.part_of in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Calls and communication of a set of modules in one phase."""

    calls: Calls
    overlapped: tuple[OverlappedCommunication, ...]


def work_of(modules: Iterable[Module], phase: Phase) -> Work:
    """Operators and exchanges of a phase; the half of the weights exchanges nothing."""
    own = [(module, module.calls(phase)) for module in modules]
    calls = tuple(call for _, of_module in own for call in of_module)
    if phase == "backward_weight":
        return Work(calls=calls, overlapped=())
    found = (_overlapped(exchange, own, of_module, phase) for module, of_module in own for exchange in module.exchanges)
    return Work(calls=calls, overlapped=tuple(one for one in found if one.communication))


def with_calls(work: Work, more: Calls) -> Work:
    """The work and further calls after it."""
    return Work(calls=work.calls + more, overlapped=work.overlapped) if more else work


def after(earlier: Work, later: Work) -> Work:
    """The one and then the other."""
    return Work(calls=earlier.calls + later.calls, overlapped=earlier.overlapped + later.overlapped)


def _overlapped(
    exchange: Exchange, modules: Sequence[tuple[Module, Calls]], own: Calls, phase: Phase
) -> OverlappedCommunication:
    """The exchange of a module whose calls are `own`, with what hides it among all modules and their calls."""
    forward = phase == "forward"
    share = exchange.forward_share if forward else exchange.backward_share
    work: Calls = ()
    if share and exchange.hidden_by:
        work = tuple(call for module, calls in modules if module.name in exchange.hidden_by for call in calls)
    elif share:
        work = own
    return OverlappedCommunication(
        heading=exchange.heading,
        communication=exchange.forward if forward else exchange.backward,
        work=work,
        share=share,
        most=exchange.most,
    )


QUERY_KEY_VALUE = 3
"""Products of attention with one input, where each matrix is a product of its own."""


def gradient_sums(rank: RankShare, kind: LayerKind) -> Calls:
    """The sums of a layer: of the residual stream before each norm and, where several products have one input, of that.

    Each is a kernel of its own in eager autograd, which reads two tensors and writes one; a compiled graph, or a fused norm that takes
    the residual, has it in another kernel.
    """
    execution, model = rank.execution, rank.model
    if execution.elementwise != "eager" and not execution.whole_layers:
        return ()
    further = int(model.gated and not execution.joins_gate and not kind.sparse and kind.has_feed_forward)
    if execution.whole_layers and model.mixer(kind).IS_PLAIN and not model.joint_qkv:
        further += QUERY_KEY_VALUE - 1
    elements = (kind.parts * rank.rows + further * rank.tokens) * model.hidden
    return (Counted(call=Stream(dtype=rank.dtype, size_bytes=3 * rank.item_bytes * elements), phase="forward"),)
