"""The terms of one pipeline rank's peak, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from predict.memory.peak import Peak
from predict.memory.state import StateBytes
from predict.run.memory_profile import Buffer

OPTIMIZER_STEP = "the optimizer's step"
TERMS = ("parameters", "gradients", "optimizer", "activations", "working", "buffers", "slack", "device")
"""The terms that add up to a rank's peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakMoment:
    """The action of the peak, or the optimizer's step; with its start and end in the step where the step was timed."""

    action: str
    start_us: float | None = None
    end_us: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankMemory:
    """Bytes at the peak. The terms from `parameters` to `buffers` are tensors and add up to `allocated`."""

    rank: int
    layers: int
    elements: int
    """Parameters that the rank computes with, whole where ZeRO-3 shards them."""
    parameters: float
    gradients: float
    """The gradients that exist at that moment."""
    resident_gradients: float
    """Those of them that exist from one step to the next."""
    optimizer: float
    activations: float
    working: float
    buffers: float
    slack: float
    """Memory that the allocator has reserved and no tensor uses."""
    device: float
    """Memory outside the allocator: context, communication."""
    between_steps: float
    """Tensors that stay allocated from one step to the next, the gradients of resident buffers among them."""
    when: PeakMoment
    width: float
    """Half-width of the uncertainty of buffers and slack."""

    @property
    def allocated(self) -> float:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.working + self.buffers

    @property
    def reserved(self) -> float:
        return self.allocated + self.slack

    @property
    def peak(self) -> float:
        """The figure of the device's own counter, which must fit."""
        return self.reserved + self.device

    @property
    def state(self) -> float:
        """Tensors that exist throughout the step."""
        return self.parameters + self.gradients + self.optimizer + self.buffers


@dataclass(frozen=True, kw_only=True, slots=True)
class RankBaseline:
    """The terms of a rank's memory that do not depend on the order of its actions."""

    rank: int
    layers: int
    elements: int
    state: StateBytes
    resident_gradients: float
    """Gradients that exist before the first backward."""
    update_working: float
    """Working set of the optimizer's step."""
    tensors: tuple[Buffer, ...]
    device: tuple[Buffer, ...]
    left_behind: float
    """Tensors that a step leaves behind and the next one frees."""
    slack_share: float
    """Slack over allocated bytes, or over those of activations, working sets and buffers alone (`slack_of_state` is False)."""
    slack_of_state: bool
    slack_width: float

    @property
    def buffer_bytes(self) -> float:
        return sum(buffer.size_bytes for buffer in self.tensors)

    @property
    def device_bytes(self) -> float:
        return sum(buffer.size_bytes for buffer in self.device)

    @property
    def late_gradients(self) -> float:
        """Gradients that the backwards of the step allocate."""
        return self.state.gradients - self.resident_gradients

    @property
    def allocated(self) -> float:
        """Bytes of the tensors that exist throughout the step."""
        return self.state.parameters + self.state.optimizer + self.resident_gradients + self.buffer_bytes

    @property
    def between_steps(self) -> float:
        """Bytes of the tensors that exist between two steps."""
        lasting = sum(buffer.size_bytes for buffer in self.tensors if buffer.between_steps)
        return self.state.parameters + self.state.optimizer + self.resident_gradients + lasting + self.left_behind

    def at(self, peak: Peak, moment: PeakMoment) -> RankMemory:
        """The rank at the peak of its actions, or in the optimizer's step if that needs more: all gradients exist by then
        and no activations."""
        in_update = self.late_gradients + self.update_working > peak.total
        made = self.late_gradients if in_update else peak.at.gradients
        working = self.update_working if in_update else peak.at.working
        activations = 0.0 if in_update else peak.at.activations
        allocated = self.allocated + made + working + activations
        fragmented = allocated if self.slack_of_state else working + activations + self.buffer_bytes
        widths = [buffer.width_bytes for buffer in (*self.tensors, *self.device)]
        return RankMemory(
            rank=self.rank,
            layers=self.layers,
            elements=self.elements,
            parameters=self.state.parameters,
            gradients=self.resident_gradients + made,
            resident_gradients=self.resident_gradients,
            optimizer=self.state.optimizer,
            activations=activations,
            working=working,
            buffers=self.buffer_bytes,
            slack=self.slack_share * fragmented,
            device=self.device_bytes,
            between_steps=self.between_steps,
            when=PeakMoment(action=OPTIMIZER_STEP) if in_update else moment,
            width=sum(width**2 for width in (*widths, self.slack_width * fragmented)) ** 0.5,
        )
