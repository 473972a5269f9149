"""What one microbatch takes in one chunk: what its forward leaves, and the most that forward and backward hold on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from predict.memory.held import HeldChunk, Unit
from predict.memory.memory_profile import MemoryProfile
from predict.memory.state import gathered_bytes, head_gradient_bytes, state_of_unit, unreduced_bytes
from predict.memory.unit_activations import ActivationsOfUnits, UnitActivations, without_shared
from predict.run.training_run import TrainingRun
from predict.workload.rank.groups import groups_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """What the chunk holds of the microbatch at one point of an action, in bytes. `gradients` are those made in it so far."""

    activations: float
    working: float
    gradients: float = 0.0

    @property
    def total(self) -> float:
        return self.activations + self.working + self.gradients


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkBytes:
    """`kept` from the forward to the backward; the rest are the worst instants of the actions. `first_backward` is the one
    that makes the gradients, where they are made anew each step; `gradients` what is there from then on."""

    kept: float
    forward: Instant
    backward: Instant
    first_backward: Instant
    gradients: float

    @property
    def backward_working(self) -> float:
        return self.backward.total - self.kept


class ChunkCounter:
    """Counts the chunks of a run, each distinct unit once."""

    def __init__(self, run: TrainingRun, profile: MemoryProfile, activations: ActivationsOfUnits) -> None:
        self._run, self._profile, self._activations = run, profile, activations
        self._groups = groups_of(run)
        self._lazy = not profile.gradient_buffers

    def of_chunk(self, chunk: HeldChunk) -> ChunkBytes:
        parts = self._parts(chunk)
        forward, backward, first = _worst(parts)
        return ChunkBytes(
            kept=sum(part.activations.kept_bytes for part in parts),
            forward=forward,
            backward=backward,
            first_backward=first,
            gradients=sum(part.gradients for part in parts),
        )

    def _parts(self, chunk: HeldChunk) -> list[_Part]:
        """What all layers of a forward use in common is kept once, by the first of them."""
        parts = []
        layers = 0
        for unit in chunk.units:
            part = _Part.of(unit, self)
            layers += unit.role == "layer"
            if unit.role == "layer" and layers > 1:
                part = replace(part, activations=without_shared(part.activations))
            parts.append(part)
        return parts

    def activations(self, unit: Unit) -> UnitActivations:
        return self._activations.of_unit(unit)

    def backward_working(self, unit: Unit) -> float:
        """The loss's backward, or the one of the product before it."""
        own = self.activations(unit).backward_working_bytes
        return max(own, head_gradient_bytes(self._run, self._profile, unit))

    def gathered(self, unit: Unit) -> float:
        return gathered_bytes(self._run, unit, self._groups)

    def unreduced(self, unit: Unit) -> float:
        return unreduced_bytes(self._run, self._profile, unit, self._groups)

    def gradients(self, unit: Unit) -> float:
        """Those that appear with the unit's first backward."""
        return state_of_unit(self._run, self._profile, unit, self._groups).gradients if self._lazy else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    activations: UnitActivations
    backward_working: float
    gathered: float
    unreduced: float
    gradients: float

    @classmethod
    def of(cls, unit: Unit, counter: ChunkCounter) -> _Part:
        return cls(
            activations=counter.activations(unit),
            backward_working=counter.backward_working(unit),
            gathered=counter.gathered(unit),
            unreduced=counter.unreduced(unit),
            gradients=counter.gradients(unit),
        )


def _worst(parts: Sequence[_Part]) -> tuple[Instant, Instant, Instant]:
    """Of the forward, the backward and the first backward. While one unit is computed FSDP collects the next one."""
    forwards, backwards, firsts = [], [], []
    made = sum(part.gradients for part in parts)
    kept = 0.0
    ahead = [*(later.gathered for _, later in pairwise(parts)), 0.0]
    behind = [0.0, *(earlier.gathered for earlier, _ in pairwise(parts))]
    for part, after, before in zip(parts, ahead, behind, strict=True):
        own = part.activations
        kept += own.kept_bytes
        there = part.gathered + after
        back = part.gathered + before + part.unreduced
        forwards.append(Instant(activations=kept, working=own.forward_working_bytes + there))
        working = part.backward_working + back
        backwards.append(Instant(activations=kept, working=working))
        # gradients of this unit and of those after it, whose backwards came before
        firsts.append(Instant(activations=kept, working=working, gradients=made))
        made -= part.gradients
    return _largest(forwards), _largest(backwards), _largest(firsts)


def _largest(instants: Sequence[Instant]) -> Instant:
    return max(instants, key=lambda instant: instant.total, default=Instant(activations=0.0, working=0.0))
