"""The peak of one rank: its actions replayed in the schedule's order.

A microbatch's activations of a chunk live from its forward to its backward; where that is split into B and W, until W, whatever share
the schedule's own account in chunk activations releases at B. Of a recomputed layer, W needs more than the forward keeps for B. The
working set of the action in progress and the gradients allocated so far are added. Memory that exists throughout the step is not included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predict.memory.activations import ChunkMemory, Instant
from predict.memory.state import StateBytes
from predict.run.memory_profile import Buffer
from predict.schedules.engine.order import BW, CHUNK, KIND, KINDS, PAIRED, Action, B, F, Rows, W
from regressors.features.arrays import Floats


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """Bytes of a rank, by action: at the action's own peak, and after it."""

    activations: Floats
    working: Floats
    gradients: Floats
    activations_after: Floats
    gradients_after: Floats

    @property
    def total(self) -> Floats:
        return self.activations + self.working + self.gradients


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The action that holds the most; `index` is its place among the rank's actions."""

    action: Action
    index: int
    at: Instant

    @property
    def total(self) -> float:
        return self.at.total


def trace(row: Rows, chunks: Sequence[ChunkMemory]) -> Trace:
    """The bytes of every action of a rank, in the rank's order `row`, from the memory of its chunks."""
    kind, chunk = row[:, KIND], row[:, CHUNK]
    kept = np.array([each.kept for each in chunks])
    first = _allocates_gradients(kind, chunk)
    after = np.cumsum(_changes(chunks)[kind, chunk])
    gradients_after = np.cumsum(np.array([each.gradients for each in chunks])[chunk] * first)
    own = _instants(chunks)[kind + len(KINDS) * first, chunk]
    # the instants of B and BW include what is kept already
    counted_twice = kept[chunk] * ((kind == B) | (kind == BW))
    alone = Trace(
        activations=_before(after) + own[:, 0] - counted_twice,
        working=own[:, 1],
        gradients=_before(gradients_after) + own[:, 2],
        activations_after=after,
        gradients_after=gradients_after,
    )
    return _with_pairs(row, alone)


def _changes(chunks: Sequence[ChunkMemory]) -> Floats:
    """Bytes of activations by which each kind of action changes what is alive, by chunk."""
    table = np.zeros((len(KINDS), len(chunks)))
    for index, chunk in enumerate(chunks):
        kept, held = chunk.kept, chunk.halves.held
        table[[F, B, W, BW], index] = kept, held - kept, -held, -kept
    return table


def _before(after: Floats) -> Floats:
    return np.concatenate([[0.0], after[:-1]])


def _allocates_gradients(kind: NDArray[np.int32], chunk: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether an action is the first W or BW of its chunk."""
    first = np.zeros(len(kind), dtype=bool)
    for index in range(chunk.max() + 1):
        first[np.flatnonzero(((kind == W) | (kind == BW)) & (chunk == index))[:1]] = True
    return first


def _instants(chunks: Sequence[ChunkMemory]) -> Floats:
    """Activations, working set and gradients of each kind of action and, below, of those that allocate gradients, by chunk.

    A W works on activations that are held already.
    """
    table = np.zeros((2 * len(KINDS), len(chunks), 3))
    for index, chunk in enumerate(chunks):
        late = Instant(activations=0.0, working=chunk.halves.weights_working)
        rows = {
            F: chunk.forward,
            B: chunk.halves.inputs,
            BW: chunk.backward,
            W: late,
            len(KINDS) + BW: chunk.first_backward,
            len(KINDS) + W: replace(late, gradients=chunk.gradients),
        }
        for code, instant in rows.items():
            table[code, index] = instant.activations, instant.working, instant.gradients
    return table


def _with_pairs(row: Rows, alone: Trace) -> Trace:
    """A forward and the backward that runs at the same time hold the activations and working sets of both."""
    pairs = np.flatnonzero(row[:, PAIRED] & (row[:, KIND] == F))
    if not len(pairs):
        return alone
    activations, working, gradients = alone.activations.copy(), alone.working.copy(), alone.gradients.copy()
    activations[pairs + 1] = np.maximum(activations[pairs + 1], activations[pairs])
    gradients[pairs] = np.maximum(gradients[pairs], gradients[pairs + 1])
    working[pairs] += alone.working[pairs + 1]
    working[pairs + 1] += alone.working[pairs]
    return replace(alone, activations=activations, working=working, gradients=gradients)


def peak_of_order(row: Rows, chunks: Sequence[ChunkMemory]) -> Peak:
    """The peak of a rank whose actions run in the order `row`."""
    found = trace(row, chunks)
    index = int(np.argmax(found.total))
    kind, microbatch, chunk, _ = row[index].tolist()
    at = Instant(
        activations=float(found.activations[index]),
        working=float(found.working[index]),
        gradients=float(found.gradients[index]),
    )
    return Peak(action=Action(KINDS[kind], microbatch, chunk), index=index, at=at)


IN_CLOSED_FORM = ("1f1b", "afab")


def peak_in_closed_form(schedule: str, chunk: ChunkMemory, *, ranks: int, rank: int, microbatches: int) -> Peak:
    """`peak_of_order` for the schedules whose live microbatches have a closed form: min(m, p − r) in 1F1B (Narayanan et al.,
    arXiv 2006.09503), all of them in GPipe."""
    live = microbatches if schedule == "afab" else min(microbatches, ranks - rank)
    others = (live - 1) * chunk.kept
    steady, later = chunk.gradients, microbatches > live
    found = [
        _at(chunk.forward, others, 0.0, Action("F", live - 1, 0), live - 1),
        _at(chunk.first_backward, others, 0.0, Action("BW", 0, 0), live),
    ]
    if later:
        found.append(_at(chunk.forward, others, steady, Action("F", live, 0), live + 1))
    if microbatches > 1:
        still = others if later else others - chunk.kept
        found.append(_at(chunk.backward, still, steady, Action("BW", 1, 0), live + (2 if later else 1)))
    return max(found, key=lambda peak: peak.total)


def _at(instant: Instant, others: float, gradients: float, action: Action, index: int) -> Peak:
    at = replace(instant, activations=others + instant.activations, gradients=gradients + instant.gradients)
    return Peak(action=action, index=index, at=at)


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
    in_graphs: float
    """Of the activations, those in the pool of CUDA graphs."""
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
    def counted(self) -> float:
        """The most that torch's counter of allocated bytes shows. It counts what graphs save while these are captured alone, before
        the first step; later their pool counts as reserved, though the same tensors are in it."""
        others = self.activations - self.in_graphs + self.working
        return self.allocated - min(self.in_graphs, others)

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

    @property
    def terms(self) -> dict[str, float]:
        """Bytes by term; they add up to the peak."""
        return {term: getattr(self, term) for term in TERMS}


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
    graphed_share: float
    """Share of the activations in the pool of CUDA graphs."""
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
            in_graphs=self.graphed_share * activations,
            slack=self.slack_share * fragmented,
            device=self.device_bytes,
            between_steps=self.between_steps,
            when=PeakMoment(action=OPTIMIZER_STEP) if in_update else moment,
            width=sum(width**2 for width in (*widths, self.slack_width * fragmented)) ** 0.5,
        )
