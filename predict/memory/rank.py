"""The terms of one pipeline rank's peak."""

from __future__ import annotations

from dataclasses import dataclass

from predict.memory.memory_profile import Buffer
from predict.memory.peak import Peak
from predict.memory.state import StateBytes


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """The instant of the peak: an action, by its name, or the optimizer's step; in µs of the step where it was timed."""

    action: str
    start_us: float | None = None
    end_us: float | None = None


OPTIMIZER_STEP = "the optimizer's step"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankMemory:
    """Bytes at the peak; the terms from `parameters` to `buffers` are tensors, and add up to `allocated`.

    `gradients` are those that exist then. `slack` is the allocator's, `device` what lies outside of it.
    """

    rank: int
    layers: int
    elements: int
    """Parameters that the rank computes with, whole where ZeRO-3 shards them."""
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    working: float
    buffers: float
    slack: float
    device: float
    when: When
    width: float
    """Half-width of what buffers and slack add."""

    @property
    def allocated(self) -> float:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.working + self.buffers

    @property
    def reserved(self) -> float:
        return self.allocated + self.slack

    @property
    def peak(self) -> float:
        """As the device's own counter has it: what must fit."""
        return self.reserved + self.device

    @property
    def state(self) -> float:
        """What is there all the time."""
        return self.parameters + self.gradients + self.optimizer + self.buffers


@dataclass(frozen=True, kw_only=True, slots=True)
class RankParts:
    """What a rank's peak is put together from."""

    rank: int
    layers: int
    elements: int
    state: StateBytes
    resident_gradients: float
    """Of the state's, those that exist before the first backward."""
    update_working: float
    tensors: tuple[Buffer, ...]
    device: tuple[Buffer, ...]
    slack_share: float
    slack_width: float

    @property
    def base(self) -> float:
        """Bytes of tensors that are there from the start."""
        buffers = sum(buffer.size_bytes for buffer in self.tensors)
        return self.state.parameters + self.state.optimizer + self.resident_gradients + buffers

    def at(self, peak: Peak, when: When) -> RankMemory:
        """The rank at its peak, which may be the optimizer's step, when all gradients are there and no activations."""
        last = self.state.gradients - self.resident_gradients + self.update_working
        in_update = peak.action is None or last > peak.total
        buffers = sum(buffer.size_bytes for buffer in self.tensors)
        made = self.state.gradients - self.resident_gradients if in_update else peak.at.gradients
        working = self.update_working if in_update else peak.at.working
        activations = 0.0 if in_update else peak.at.activations
        allocated = self.base + made + working + activations
        widths = [each.width_bytes for each in (*self.tensors, *self.device)]
        return RankMemory(
            rank=self.rank,
            layers=self.layers,
            elements=self.elements,
            parameters=self.state.parameters,
            gradients=self.resident_gradients + made,
            optimizer=self.state.optimizer,
            activations=activations,
            working=working,
            buffers=buffers,
            slack=self.slack_share * allocated,
            device=sum(buffer.size_bytes for buffer in self.device),
            when=When(action=OPTIMIZER_STEP) if in_update else when,
            width=sum(width**2 for width in (*widths, self.slack_width * allocated)) ** 0.5,
        )
