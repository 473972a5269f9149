"""Activations: the bytes on one rank that one microbatch's forward keeps for its backward."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from predict.layers.adapters import frozen_saved
from predict.layers.embedding import saved_by_embedding
from predict.layers.head import saved_by_head, saved_by_joining
from predict.layers.layer import REPEATED, ROTARY_TABLES, held_for_weights, kept_by_layer, saved_by_layer
from predict.layers.norms import NORM, keeps_its_input
from predict.layers.part import mixer_of
from predict.layers.saved_tensors import (
    Saved,
    Sizes,
    backward_peak_beyond_kept,
    forward_peak_beyond_kept,
    kept_by_component,
    peak_without_graph,
)
from predict.memory.state import (
    ChunkUnits,
    StateBytes,
    Unit,
    gathered_bytes,
    head_gradient_bytes,
    is_table_of_root,
    linear_shapes,
    run_of_unit,
    sent_bytes,
    state_of_unit,
    transposed_bytes,
    unreduced_bytes,
)
from predict.model.spec import LayerKind
from predict.rank.groups import groups_of
from predict.rank.share import RankShare
from predict.run.adapters import NOTHING_TRAINED
from predict.run.memory_profile import MemoryProfile
from predict.run.training_run import TrainingRun
from sampling.cells.matrices import Shape

OUTSIDE_LAYERS: Mapping[str, Callable[[Sizes], Saved]] = {
    "embedding": saved_by_embedding,
    "joining": saved_by_joining,
    "head": saved_by_head,
}
"""The tensors of a unit that is not a layer, by its role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes that one unit keeps of one microbatch until its backward, and its working sets.

    The residual stream counts where a norm keeps it as its input, and nowhere else. Gradients of weights are not included.
    """

    components: Mapping[str, float]
    """Kept bytes by component."""
    forward_working_bytes: float
    """Peak of the forward beyond the kept bytes."""
    backward_working_bytes: float
    """Peak of the backward beyond the kept bytes: gradients of activations, and the tensors of a repeated forward."""
    in_graphs_bytes: float = 0.0
    """Of the kept bytes, those that lie in the pool of the layer's CUDA graphs."""

    @property
    def kept_bytes(self) -> float:
        return sum(self.components.values())

    @property
    def kept_without_rotary_bytes(self) -> float:
        """Bytes kept by a layer after the first, which keeps the rotary tables for all of them."""
        return self.kept_bytes - self.components.get(ROTARY_TABLES, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class BetweenHalves:
    """Bytes held from the half of a split backward that makes gradients of inputs to that of weights, and the peak of the latter beyond
    them."""

    held_bytes: float
    working_bytes: float


def unit_activations(rank: RankShare, profile: MemoryProfile, unit: Unit) -> Activations:
    """The activations of a unit of a chunk, recomputed as the unit says."""
    if unit.kind is not None:
        return layer_activations(rank, unit.kind, profile, recompute=unit.recompute)
    sizes = Sizes(rank=rank, profile=profile)
    return _activations(sizes, frozen_saved(sizes, OUTSIDE_LAYERS[unit.role](sizes)))


def _without_graph(rank: RankShare, profile: MemoryProfile, unit: Unit) -> Activations:
    """The activations of a unit that runs forward alone, and keeps nothing for a backward."""
    sizes = Sizes(rank=rank, profile=profile)
    saved = saved_by_layer(sizes, unit.kind) if unit.kind else OUTSIDE_LAYERS[unit.role](sizes)
    forward = sizes.stream + peak_without_graph(saved)
    return Activations(components={}, forward_working_bytes=forward, backward_working_bytes=0.0)


def layer_activations(rank: RankShare, kind: LayerKind, profile: MemoryProfile, *, recompute: str) -> Activations:
    """One layer under recompute `none`, `selective`, `ops` or `full` (`kept_by_layer`), without what waits on the host."""
    sizes = Sizes(rank=rank.of_layer(kind), profile=profile)
    saved = saved_by_layer(sizes, kind)
    if recompute in REPEATED:
        found = _repeated(sizes, saved, kept_by_layer(sizes, kind, recompute))
    else:
        modules = rank.plan.modules_recomputed if recompute == "selective" else ()
        found = replace(_activations(sizes, saved, modules), in_graphs_bytes=_in_graphs(sizes, kind, modules))
    return _without_waiting(found, rank.run.offload.activation_share)


def between_halves(rank: RankShare, kind: LayerKind, profile: MemoryProfile) -> BetweenHalves:
    """A recomputed layer where its backward is split. What is repeated for B is there for W, as far as W needs it."""
    sizes = Sizes(rank=rank.of_layer(kind), profile=profile)
    saved = saved_by_layer(sizes, kind)
    working = _activations(sizes, saved).backward_working_bytes
    return BetweenHalves(held_bytes=held_for_weights(sizes, kind, saved), working_bytes=working)


def _in_graphs(sizes: Sizes, kind: LayerKind, recomputed: Sequence[str]) -> float:
    """Bytes that the mixer saves where its layer is launched as a CUDA graph. Its input, which the norm keeps, is the graph's own
    static one, and the rotary tables come from outside (Megatron-Core, transformer/cuda_graphs.py; Transformer Engine, graph.py,
    make_graphed_callables: static_input_surface)."""
    if sizes.rank.execution.cuda_graphs != "layers":
        return 0.0
    mixer = mixer_of(sizes.model, kind)
    if mixer is None:
        return 0.0
    kept = kept_by_component(mixer.saved_tensors(sizes), recomputed)
    return sum(size for component, size in kept.items() if component not in (NORM, ROTARY_TABLES))


def _activations(sizes: Sizes, saved: Saved, recomputed: Sequence[str] = ()) -> Activations:
    # the gradient of the residual stream exists throughout the backward
    return Activations(
        components=kept_by_component(saved, recomputed),
        forward_working_bytes=forward_peak_beyond_kept(saved, recomputed),
        backward_working_bytes=sizes.stream + backward_peak_beyond_kept(saved, recomputed),
    )


def _without_waiting(found: Activations, share: float) -> Activations:
    """Activations of which this share waits on the host, and is back while its backward runs, a layer at a time."""
    if not share:
        return found
    components = {
        component: size if component == ROTARY_TABLES else (1 - share) * size
        for component, size in found.components.items()
    }
    away = found.kept_bytes - sum(components.values())
    return replace(
        found,
        components=components,
        forward_working_bytes=found.forward_working_bytes + away,
        backward_working_bytes=found.backward_working_bytes + away,
    )


def _repeated(sizes: Sizes, saved: Saved, kept: Mapping[str, float]) -> Activations:
    """A layer whose forward the backward repeats from what is kept: its input, and the outputs of operators that are not repeated."""
    own = sum(step.kept for step in saved if step.component != ROTARY_TABLES)
    outputs = sum(size for component, size in kept.items() if component not in ("residual", ROTARY_TABLES))
    # the repeated forward keeps everything again, except the tensors that the checkpoint holds
    again = own - (sizes.stream if keeps_its_input(sizes) else 0.0) - outputs
    return Activations(
        components=kept,
        # apart from the stream after attention, the layer's input is all that stays
        forward_working_bytes=sizes.stream + peak_without_graph(saved),
        backward_working_bytes=again
        + max(forward_peak_beyond_kept(saved), sizes.stream + backward_peak_beyond_kept(saved)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Instant:
    """Bytes that a chunk holds of a microbatch at one point of an action. `gradients` are those made in the action so far."""

    activations: float
    working: float
    gradients: float = 0.0

    @property
    def total(self) -> float:
        return self.activations + self.working + self.gradients


@dataclass(frozen=True, kw_only=True, slots=True)
class Halves:
    """The halves of a split backward of a chunk. Each goes through its units as the whole backward does."""

    inputs: Instant
    """Peak of that of the inputs, while the units after the one in progress wait for their weights' half."""
    held: float
    """Bytes held between them."""
    weights_working: float
    """Peak of that of the weights beyond `held`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkMemory:
    """Bytes kept between forward and backward, and the peak instant of each action.

    `first_backward` is the backward that allocates the gradients, where each step allocates them anew; `gradients` are all
    that it allocates. `halves` are those of a backward that is split.
    """

    kept: float
    forward: Instant
    backward: Instant
    first_backward: Instant
    halves: Halves
    gradients: float
    in_graphs: float = 0.0
    """Of the kept bytes, those in the pool of CUDA graphs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitMemory:
    """Bytes of one unit."""

    state: StateBytes
    linear_shapes: frozenset[Shape]
    """[out, in] of its linear modules on one rank."""
    activations: Activations
    kept: float
    """Bytes of `activations` that are not another unit's already."""
    backward_working: float
    between: BetweenHalves | None
    """Where its backward is split and it is recomputed; any other keeps the same bytes until the half of the weights, which works as the
    whole backward does."""
    weights_working: float
    """Working set of the weights' half."""
    gathered: float
    unreduced: float
    sent: float
    """Whole gradients as they are reduced."""
    elements: int
    gradients: float
    """Gradients that its first backward allocates."""
    throughout: float = 0.0
    """Bytes of whole weights that stay from the chunk's first action to its last."""
    throughout_backward: float = 0.0
    """And of their gradient, from the backward of the head on."""


class ChunkCounter:
    """Counts the chunks of a run; each distinct unit is counted once."""

    def __init__(self, run: TrainingRun, profile: MemoryProfile) -> None:
        self._run, self._profile = run, profile
        self._rank, self._groups = RankShare(run=run), groups_of(run)
        self._units: dict[Unit, UnitMemory] = {}

    def unit(self, unit: Unit) -> UnitMemory:
        if unit not in self._units:
            self._units[unit] = self._count(unit)
        return self._units[unit]

    def chunk(self, chunk: ChunkUnits) -> ChunkMemory:
        units = self.units(chunk)
        forward, backward, first, halves = _peaks(units, self._in_transfer(chunk), [_held(unit) for unit in units])
        return ChunkMemory(
            kept=sum(unit.kept for unit in units),
            forward=forward,
            backward=backward,
            first_backward=first,
            halves=halves,
            gradients=sum(unit.gradients for unit in units),
            in_graphs=sum(unit.activations.in_graphs_bytes for unit in units),
        )

    def forward_alone(self, chunk: ChunkUnits) -> float:
        """The peak of a microbatch's forward that keeps nothing for a backward, with the whole weights that are gathered for it."""
        units = [self.unit(unit) for unit in chunk.units]
        ahead = _gathered_ahead(units, self._in_transfer(chunk) / 2)
        working = (
            self._alone(unit).forward_working_bytes + of_unit.gathered + next_gathered
            for unit, of_unit, next_gathered in zip(chunk.units, units, ahead, strict=True)
        )
        return sum(unit.throughout for unit in units) + max(working)

    def _alone(self, unit: Unit) -> Activations:
        rank = RankShare(run=run_of_unit(self._run, unit)) if unit.of_tower else self._rank
        return _without_graph(rank.of_layer(unit.kind) if unit.kind else rank, self._profile, unit)

    def _in_transfer(self, chunk: ChunkUnits) -> float:
        """Elements whose gradients are held whole at once while they are reduced, without those of the unit that is computed."""
        least = self._profile.elements_in_transfer
        layers = [unit.weights.total for unit in chunk.units if unit.role == "layer"]
        if not least or self._run.plan.zero < 3 or not layers:
            return float(least)
        return max(least, 2 * sum(layers) / len(layers))

    def units(self, chunk: ChunkUnits) -> list[UnitMemory]:
        """The units of a chunk; only the first layer keeps the rotary tables that all of them use, of the tower's and of the text's."""
        found, layers, of_tower = [], 0, False
        for each in chunk.units:
            memory = self.unit(each)
            if each.role == "layer" and each.of_tower != of_tower:
                layers, of_tower = 0, each.of_tower
            layers += each.role == "layer"
            if each.role == "layer" and layers > 1:
                memory = replace(memory, kept=memory.activations.kept_without_rotary_bytes)
            found.append(memory)
        if self._profile.holds_stage_outputs:
            found[0] = replace(found[0], kept=found[0].kept + self._held_input(chunk.units[0]))
            found[-1] = replace(found[-1], kept=found[-1].kept + self._held_output(chunk.units[-1]))
        return found

    def _held_input(self, first: Unit) -> float:
        """Bytes of a stage's input that its first layer does not keep itself."""
        sizes = Sizes(rank=self._rank, profile=self._profile)
        is_kept = first.recompute in ("full", "ops") or keeps_its_input(sizes)
        return 0.0 if first.role != "layer" or is_kept else sizes.stream

    def _held_output(self, last: Unit) -> float:
        """Bytes of a stage's output, unless they are the logits, which `held_logits` counts."""
        return 0.0 if last.role != "layer" else Sizes(rank=self._rank, profile=self._profile).stream

    def _count(self, unit: Unit) -> UnitMemory:
        run, profile, groups = run_of_unit(self._run, unit), self._profile, self._groups
        rank = RankShare(run=run) if unit.of_tower else self._rank
        is_frozen = unit.of_tower and run.adapters == NOTHING_TRAINED
        activations = (_without_graph if is_frozen else unit_activations)(rank, profile, unit)
        state = state_of_unit(run, profile, unit, groups)
        gathered, unreduced = gathered_bytes(run, profile, unit, groups), unreduced_bytes(run, profile, unit, groups)
        sent = sent_bytes(run, profile, unit, groups)
        stays = is_table_of_root(run, profile, unit)
        of_head, transposed = head_gradient_bytes(run, profile, unit), transposed_bytes(run, unit, groups)
        repeats = unit.recompute != "none" and not is_frozen and self._run.schedule.splits_backward
        between = between_halves(rank, unit.kind, profile) if unit.kind and repeats else None
        return UnitMemory(
            state=state,
            linear_shapes=linear_shapes(run, unit.kind) if unit.kind else frozenset(),
            activations=activations,
            kept=activations.kept_bytes,
            # the backward of the loss, or of the product before it
            backward_working=max(activations.backward_working_bytes, of_head) + transposed,
            weights_working=max(between.working_bytes if between else activations.backward_working_bytes, of_head)
            + transposed,
            between=between,
            gathered=0.0 if stays else gathered,
            unreduced=unreduced,
            sent=sent,
            elements=unit.weights.total,
            gradients=0.0 if profile.gradient_buffers else state.gradients,
            throughout=stays * gathered,
            throughout_backward=stays * (unreduced - sent),
        )


def _held(unit: UnitMemory) -> float:
    """Bytes that a unit holds between the halves of its backward."""
    return unit.between.held_bytes if unit.between else unit.kept


def _peaks(
    units: Sequence[UnitMemory], in_transfer: float, held: Sequence[float]
) -> tuple[Instant, Instant, Instant, Halves]:
    """The peaks of forward, backward, first backward and the halves of one. While one unit is computed, FSDP gathers the next one, or as
    many as make half of `in_transfer` elements with it, and gradients of units before it are reduced."""
    forwards, backwards, firsts, inputs, weights = [], [], [], [], []
    made = sum(unit.gradients for unit in units)
    throughout = sum(unit.throughout for unit in units)
    throughout_backward = throughout + sum(unit.throughout_backward for unit in units)
    kept, waiting, all_held = 0.0, sum(held), sum(held)
    next_gathered = _gathered_ahead(units, in_transfer / 2)
    previous_gathered = _gathered_ahead(units[::-1], in_transfer / 2)[::-1]
    reduced = _being_reduced(units, in_transfer)
    for unit, of_unit, ahead, behind, earlier in zip(
        units, held, next_gathered, previous_gathered, reduced, strict=True
    ):
        kept += unit.kept
        waiting -= of_unit
        working = unit.activations.forward_working_bytes + unit.gathered + ahead + throughout
        forwards.append(Instant(activations=kept, working=working))
        of_weights = unit.gathered + behind + unit.unreduced + earlier + throughout_backward
        working = unit.backward_working + of_weights
        backwards.append(Instant(activations=kept, working=working))
        inputs.append(Instant(activations=kept + waiting, working=working))
        weights.append(unit.weights_working + of_weights - waiting)
        # gradients of this unit and of the later ones, whose backwards came before
        firsts.append(Instant(activations=kept, working=working, gradients=made))
        made -= unit.gradients
    halves = Halves(inputs=_largest(inputs), held=all_held, weights_working=max(weights, default=0.0))
    return _largest(forwards), _largest(backwards), _largest(firsts), halves


def _gathered_ahead(units: Sequence[UnitMemory], elements: float) -> list[float]:
    """Bytes that are gathered for the units after each, until it and they have so many elements (Megatron-FSDP,
    param_and_grad_buffer.py, all_gather_params); where none are given, for the next one."""
    if not any(unit.gathered for unit in units):
        return [0.0] * len(units)
    if not elements:
        return [*(later.gathered for later in units[1:]), 0.0]
    found = []
    for place, unit in enumerate(units):
        size, held = 0.0, unit.elements
        for later in units[place + 1 :]:
            if held >= elements:
                break
            size, held = size + later.gathered, held + later.elements
        found.append(size)
    return found


def _being_reduced(units: Sequence[UnitMemory], elements: float) -> list[float]:
    """Bytes of whole gradients that wait, while each unit's backward runs, for the end of their reduction: when a unit's is sent, the
    oldest are freed until those left have so many elements (Megatron-FSDP, param_and_grad_buffer.py, wait_for_previous_grad_reduce)."""
    if not elements or not any(unit.sent for unit in units):
        return [0.0] * len(units)
    found: list[float] = []
    waiting: deque[UnitMemory] = deque()
    for unit in reversed(units):
        found.append(sum(each.sent for each in waiting))
        while sum(each.elements for each in waiting) > elements:
            waiting.popleft()
        waiting.append(unit)
    return found[::-1]


def _largest(instants: Sequence[Instant]) -> Instant:
    return max(instants, key=lambda instant: instant.total, default=Instant(activations=0.0, working=0.0))
