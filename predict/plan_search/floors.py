"""Floor of the step time: no plan's estimate lies below it.

A rank works through all its actions one after the other; the first cannot start before a microbatch has passed the stages
before it, and after the last the gradient still passes them back:

    step ≥ max over ranks of (forward of the stages before + work of the rank + backward of the stages before) · stragglers + overhead

With even stages and free transfers this is 1F1B's own time, interleaved or not. Transfers, the order of the schedule, and the
end of the step (gradients, optimizer) come on top. Where the backward is split, its last part may be the weights', so that what
follows it is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predict.memory.activations import unit_activations
from predict.memory.buffers import slack_of
from predict.memory.state import Unit, embedding_unit, head_units, layer_unit, state_of_unit
from predict.model.spec import LayerKind
from predict.plan_search.legal import Space, distinct
from predict.plan_search.opening import MODULES, Openings
from predict.prices.open import open_prices
from predict.rank.blocks import Repeated
from predict.rank.groups import groups_of
from predict.rank.share import RankShare
from predict.run.frameworks import memory_profile_of
from predict.run.stages import Stage, placement_of, stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.schedules.building import chunk_turns, round_size
from predict.step.priced_block import BlockPrices, block_prices
from predict.step.priced_rank import waiting_factor
from predict.workload.alike_runs import block_cache
from predict.workload.layer import LayerBlocks
from regressors.features.arrays import Floats, Ints

Made = TypeVar("Made")

# Times of a model's blocks (a layer of each kind, embedding, head) on one rank, for many plans at once.
#
# They are the blocks of the estimate itself, priced by the same prices. Plans that differ in how the layers lie on the pipeline
# share them, so that they are a few thousand where plans are a million.

PHASES = ("forward", "backward", "backward_input", "backward_weight", "again", "accumulation")
FORWARD, BACKWARD, INPUT, WEIGHT, AGAIN, ACCUMULATION = range(len(PHASES))
ON_A_RANK = ("plan.tp", "plan.sp", "plan.cp", "plan.cp_method", "plan.ep", "plan.etp", "batch.micro", "batch.seq_len")
"""Keys that decide the blocks, beside all of execution."""
SHARDED = ("plan.zero", "plan.shard", "plan.dp")
"""Keys that decide them where gradients or weights are sharded."""
FEWEST_SHARDED = 2
PAIRING = ("plan.pp", "plan.vpp", "plan.schedule", "plan.dp", "batch.micro", "batch.global")
"""Keys that decide the share of passes with no other microbatch beside them, and so the blocks where microbatches hide exchanges."""
LEVELS = 8
"""Levels of that share: of the plans of a level, the one with the smallest share stands for all, since its blocks take no longer."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockTimes:
    """µs by distinct set of blocks, block and phase, shape (sets, kinds + 2, phases): last the embedding and the head.

    The accumulation is that of one microbatch that adds to the gradients of others.
    """

    times: Floats
    of_row: Ints
    """The set that each plan has."""


def lightest(run: TrainingRun) -> TrainingRun:
    """The run without the modules that it recomputes, whose blocks take no longer than those of any set of them."""
    return replace(run, plan=replace(run.plan, recompute="none"))


def sets_of_blocks(space: Space, opening: Openings | None = None) -> tuple[Ints, Ints]:
    """A plan for each distinct set of blocks, and the set that each plan has; those that stand for any modules have the blocks of none."""
    count = len(space.rows)
    execution = [axis.path for axis in space.question.axes if axis.section == "execution"]
    recompute = space.column("plan.recompute")
    any_modules = opening.any_modules if opening else np.zeros(count, dtype=bool)
    selective = ((recompute == "selective") & ~any_modules).astype(np.int64)
    in_blocks = selective + 2 * (recompute == "ops")  # whole layers are repeated by a block of their own
    sharded = (space.column("plan.zero") >= FEWEST_SHARDED).astype(np.int64)
    columns = [in_blocks, sharded, *space.indices((*ON_A_RANK, *execution))]
    columns += [column * selective for column in space.indices(("plan.recompute_modules",))]
    columns += [column * sharded for column in space.indices(SHARDED)]
    shares = np.where(space.column("execution.overlap_ep") == "microbatch", _lone_shares(space), 1.0)
    columns.append(np.ceil(shares * LEVELS).astype(np.int64))
    # the smallest share, and of equal ones the last plan: pipelines are joined first, and the deepest one has the most microbatches
    order = np.lexsort((-np.arange(count), shares))
    first, of_ordered = distinct([column[order] for column in columns], count)
    of_row = np.empty(count, np.int64)
    of_row[order] = of_ordered
    return order[first], of_row


def _lone_shares(space: Space) -> Floats:
    """Each plan's share of passes with no other microbatch beside them."""
    first, of_row = distinct(space.indices(PAIRING), len(space.rows))
    shares: Floats = np.array([space.run(row).lone_share for row in first.tolist()])[of_row]
    return shares


def block_times(
    runs: Sequence[TrainingRun], kinds: Sequence[LayerKind], *, halves: bool, only: LayerKind | None = None
) -> Floats:
    """The times of each run's blocks, shape (runs, kinds + 2, phases); without `halves`, 0 for those of the backward, and with `only` one
    kind of layer, 0 for all others."""
    phases = [phase for phase in PHASES if halves or PHASES.index(phase) not in (INPUT, WEIGHT)]
    times = [_times(run, kinds, phases, only) for run in runs]
    return np.array(times).reshape(len(runs), len(kinds) + 2, len(PHASES))


def _times(run: TrainingRun, kinds: Sequence[LayerKind], phases: Sequence[str], only: LayerKind | None) -> Floats:
    prices = block_prices(run, open_prices(run.cluster, run.execution))
    cache = block_cache(run)
    times = np.zeros((len(kinds) + 2, len(PHASES)))
    for place, kind in enumerate(kinds):
        if only in (None, kind):
            times[place] = _of_block(cache.layer(kind), prices, phases)
    if only is None:
        times[-2] = _of_block(cache.embedding(), prices, phases)
        times[-1] = _of_block(cache.head(shares_embedding=run.model.tied), prices, phases)
    times[:, ACCUMULATION] *= _added_to(run)
    return times


def _of_block(blocks: LayerBlocks, prices: BlockPrices, phases: Sequence[str]) -> list[float]:
    """The block's time in each of PHASES; 0 in those that are not among `phases`."""
    found: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for phase in phases:
        if phase == "again" and _runs_as_forward(blocks):
            found[phase] = found["forward"]
        else:
            found[phase] = prices.bucket((Repeated(block=getattr(blocks, phase), count=1.0),)).median_us
    return list(found.values())


def _runs_as_forward(blocks: LayerBlocks) -> bool:
    """Whether the repeated forward does all that the forward does, as it does unless the forward gathers weights."""
    again, forward = blocks.again, blocks.forward
    return again.calls is forward.calls and again.overlapped == forward.overlapped


def _added_to(run: TrainingRun) -> float:
    """Accumulations of a microbatch that adds, over the mean of all microbatches; 0 where first copies are among them, whose
    number does not grow with the microbatches."""
    execution, microbatches = run.execution, run.microbatches
    if microbatches == 1 or not (execution.fuse_gradients or run.plan.zero or run.plan.dp > 1):
        return 0.0
    return microbatches / (microbatches - 1)


# Structures: how the layers of a model lie on the chunks of the pipeline ranks, which many plans share.

KEYS = (
    "plan.pp", "plan.vpp", "plan.schedule", "plan.layout", "plan.first_stage_layers", "plan.last_stage_layers",
    "plan.count_embedding", "plan.count_loss", "plan.recompute", "plan.recompute_method", "plan.recompute_layers",
)  # fmt: skip
"""The keys that decide the structure."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Structure:
    """Counts of a model's units (a layer of each kind, embedding, head) by pipeline rank and chunk, shape (ranks, chunks, units)."""

    run: TrainingRun
    """One of the plans that have it."""
    units: Floats
    repeated: Floats
    """Those whose forward full recomputation runs again."""
    before: Floats
    """Units of the stages before the rank's earliest one, by copy of the model, shape (copies, ranks, units)."""
    repeated_before: Floats
    """Those of them whose forward is run again."""

    @property
    def copies(self) -> int:
        return len(self.before)

    @property
    def splits_backward(self) -> bool:
        return self.run.schedule.splits_backward


def kinds_of(space: Space) -> tuple[LayerKind, ...]:
    return tuple(dict.fromkeys(space.question.base.model.kinds()))


def structures(space: Space, opening: Openings | None = None) -> Iterator[tuple[Structure, Ints, bool]]:
    """Each structure of the legal plans, the rows that have it, and whether they stand for any layout."""
    any_layout = [opening.any_layout.astype(np.int64)] if opening else []
    columns = space.indices(KEYS)
    first, inverse = distinct([*columns, *any_layout], len(space.rows))
    made = _made(space, columns, first, _structure)
    order = np.argsort(inverse, kind="stable")
    edges = np.searchsorted(inverse[order], np.arange(len(first) + 1))
    for number, row in enumerate(first.tolist()):
        own = order[edges[number] : edges[number + 1]]
        yield made[number], own, bool(opening and opening.any_layout[row])


def _made(
    space: Space, columns: Sequence[NDArray[Any]], rows: Ints, make: Callable[[TrainingRun, Sequence[LayerKind]], Made]
) -> list[Made]:
    """Everything that is made of each of these plans, which is the same for spaces of one question where the columns are."""
    kinds = kinds_of(space)
    names = np.stack([column[rows] for column in columns], axis=1).tolist() if columns else [[]] * len(rows)
    found = []
    for row, name in zip(rows.tolist(), names, strict=True):
        if (make, *name) not in space.made:
            space.made[make, *name] = make(space.run(row), kinds)
        found.append(space.made[make, *name])
    return found


def _structure(run: TrainingRun, kinds: Sequence[LayerKind]) -> Structure:
    placement, ranks = placement_of(run), stages_of_ranks(run)

    def counts(stage: Stage) -> list[float]:
        return [*(float(stage.kinds.count(kind)) for kind in kinds), float(stage.first), float(stage.last)]

    def repeats(stage: Stage) -> list[float]:
        again = stage.kinds[: run.plan.fully_recomputed(len(stage.kinds))]
        return [*(float(again.count(kind)) for kind in kinds), 0.0, 0.0]

    units, repeated = (np.array([[of(stage) for stage in stages] for stages in ranks]) for of in (counts, repeats))
    stage, chain = np.array(placement.stages), np.array(placement.chains)
    return Structure(
        run=run,
        units=units,
        repeated=repeated,
        before=_before(units, stage, chain),
        repeated_before=_before(repeated, stage, chain),
    )


def _before(counts: Floats, stage: Ints, chain: Ints) -> Floats:
    """Counts of the stages before each rank's earliest stage of each copy, from those by rank and chunk."""
    found = []
    for copy in range(int(chain.max()) + 1):
        own = chain == copy
        stages = stage[:, own]
        in_order = np.zeros((stages.size, counts.shape[2]))
        in_order[stages.ravel()] = counts[:, own].reshape(-1, counts.shape[2])
        found.append((np.cumsum(in_order, axis=0) - in_order)[stages.min(axis=1)])
    return np.array(found)


ROUNDING = 1e-9
"""Share by which sums in another order may differ."""


def time_floors(space: Space, blocks: BlockTimes, opening: Openings | None = None) -> Floats:
    """µs of the step that each legal plan needs at least, or the least of the plans that it stands for."""
    floors = np.zeros(len(space.rows))
    microbatches = microbatches_of(space)
    for structure, rows, any_layout in structures(space, opening):
        floor = _floor_of_any_layout if any_layout else _floor
        floors[rows] = floor(structure, blocks.times[blocks.of_row[rows]], microbatches[rows])
    waiting = space.column("execution.waiting_time") * space.column("execution.stragglers")
    factors = waiting_factor(waiting, space.question.base.cluster.world_size)
    whole: Floats = (floors * factors + space.column("execution.step_overhead_us")) * (1 - ROUNDING)
    return whole


def microbatches_of(space: Space) -> Ints:
    sequences = space.column("batch.global") // (space.column("batch.micro") * space.column("plan.dp"))
    return np.asarray(sequences, dtype=np.int64)


def _floor(structure: Structure, times: Floats, microbatches: Ints) -> Floats:
    """The pipeline's time by set of blocks, from their times (sets, units, phases)."""
    forward, again = times[..., FORWARD], times[..., AGAIN]
    added = times[..., ACCUMULATION] * ((microbatches - 1) / microbatches)[:, None]
    if structure.splits_backward:
        # such a schedule may run some backwards whole
        least = np.minimum(times[..., BACKWARD], times[..., INPUT] + times[..., WEIGHT])
        backward, follows = least + added, np.zeros_like(forward)
    else:
        backward = follows = times[..., BACKWARD] + added
    work = (forward + backward) @ structure.units.sum(axis=1).T + again @ structure.repeated.sum(axis=1).T
    outside = (forward + follows) @ np.moveaxis(structure.before, 1, 2)
    if not structure.splits_backward:
        outside += again @ np.moveaxis(structure.repeated_before, 1, 2)
    share = microbatches / structure.copies
    pipeline: Floats = (work * share[:, None] + outside.min(axis=0)).max(axis=1)
    return pipeline


def _floor_of_any_layout(structure: Structure, times: Floats, microbatches: Ints) -> Floats:
    """The least of `_floor` over all layouts. Some rank has a mean rank's work, and as many layers as round up to the mean; where a rank
    is one stage, the stages before it delay it too, which is least if each rank ends at one time: T = work / (1 - (1 - 1 / m)^p)."""
    ranks, of_layers = len(structure.units), structure.units[..., :-2].sum(axis=(0, 1))
    added = times[..., ACCUMULATION] * ((microbatches - 1) / microbatches)[:, None]
    backward = times[..., BACKWARD]
    if structure.splits_backward:
        backward = np.minimum(backward, times[..., INPUT] + times[..., WEIGHT])
    of_unit = times[..., FORWARD] + backward + added
    work = of_unit @ structure.units.sum(axis=(0, 1))
    if structure.run.plan.recompute_method == "uniform":
        work = work + times[..., AGAIN] @ structure.repeated.sum(axis=(0, 1))
    share = microbatches / structure.copies
    fullest = of_unit[:, :-2][:, of_layers > 0].min(axis=1) * np.ceil(of_layers.sum() / ranks) * share
    mean = work * share / ranks
    if structure.copies == 1 and structure.units.shape[1] == 1 and not structure.splits_backward:
        mean = work / (1 - (1 - 1 / microbatches) ** ranks)
    least: Floats = np.maximum(mean, fullest)
    return least


# Bytes of a model's units (a layer of each kind, embedding, head) on one rank, for many plans at once.
#
# They are those of the estimate itself: weights, gradients and optimizer state by how the state is sharded, activations by how a
# microbatch is spread and recomputed.

STATE = ("plan.tp", "plan.cp", "plan.dp", "plan.ep", "plan.etp", "plan.zero", "plan.shard")
"""Keys that decide the state, beside all of execution."""
ACTIVATIONS = (
    "plan.tp", "plan.sp", "plan.cp", "plan.cp_method", "plan.ep", "plan.etp", "plan.recompute", "plan.recompute_modules",
    "plan.recompute_method", "batch.micro", "batch.seq_len",
)  # fmt: skip
"""Keys that decide the activations, beside all of execution."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UnitBytes:
    """Bytes by distinct set and unit, shape (sets, kinds + 2): last the embedding and the head; and the set of each plan."""

    bytes: Floats
    of_row: Ints


def state_bytes(space: Space) -> UnitBytes:
    """Weights, optimizer state and the gradients that exist throughout the step."""
    return _of_sets(space, STATE, _state)


def kept_bytes(space: Space, opening: Openings | None = None) -> UnitBytes:
    """Activations that one microbatch leaves in a unit until its backward; the least of any set of recomputed modules."""
    if opening is None or not opening.any_modules.any():
        return _of_sets(space, ACTIVATIONS, _kept)
    least, place = space.rows.copy(), next(n for n, axis in enumerate(space.question.axes) if axis.path == MODULES)
    (modules,) = (axis.values for axis in space.question.axes if axis.path == MODULES)
    # a step that several modules contain keeps the least that any of them leaves
    least[opening.any_modules, place] = max(range(len(modules)), key=lambda index: modules[index].count(","))
    return _of_sets(replace(space, rows=least), ACTIVATIONS, _kept)


def _of_sets(
    space: Space, paths: Sequence[str], of: Callable[[TrainingRun, Sequence[LayerKind]], list[float]]
) -> UnitBytes:
    execution = [axis.path for axis in space.question.axes if axis.section == "execution"]
    columns = space.indices((*paths, *execution))
    first, of_row = distinct(columns, len(space.rows))
    found = _made(space, columns, first, of)
    return UnitBytes(bytes=np.array(found).reshape(len(first), len(kinds_of(space)) + 2), of_row=of_row)


def _state(run: TrainingRun, kinds: Sequence[LayerKind]) -> list[float]:
    profile, groups = memory_profile_of(run), groups_of(run)

    def of(unit: Unit) -> float:
        state = state_of_unit(run, profile, unit, groups)
        return state.parameters + state.optimizer + (state.gradients if profile.gradient_buffers else 0.0)

    return [sum(map(of, units)) for units in _units(run, kinds)]


def _kept(run: TrainingRun, kinds: Sequence[LayerKind]) -> list[float]:
    rank, profile = RankShare(run=run), memory_profile_of(run)

    def of(unit: Unit) -> float:
        return unit_activations(rank, profile, unit).kept_without_rotary_bytes

    return [sum(map(of, units)) for units in _units(run, kinds)]


def _units(run: TrainingRun, kinds: Sequence[LayerKind]) -> Iterator[Sequence[Unit]]:
    """A layer of each kind, the embedding, and the head with what follows it; the smaller head where a model ties its tables."""
    for kind in kinds:
        yield [layer_unit(run, kind)]
    yield [embedding_unit(run)]
    yield head_units(run, shares_embedding=run.model.tied, has_embedding=True)


# Floor of a plan's memory: the peak of its estimate does not lie below it.
#
# A rank holds its state throughout, and, just before its first backward, what the forwards so far have kept. Their number is
# known of 1F1B, interleaved 1F1B and GPipe; of the other schedules one microbatch counts. The working set of the action in
# progress, buffers and communicators come on top.


def state_floors(space: Space, opening: Openings | None = None) -> Floats:
    """Bytes per GPU of the state alone, on the rank that holds most of it."""
    state = state_bytes(space)
    held = np.zeros(len(space.rows))
    for structure, rows, any_layout in structures(space, opening):
        of_units = state.bytes[state.of_row[rows]][:, None, None, :]
        held[rows] = _fullest(structure, of_units, any_layout=any_layout)
    return _reserved(space, held)


def memory_floors(space: Space, opening: Openings | None = None) -> Floats:
    """Bytes per GPU that each legal plan needs at least, on the rank that needs most; the least of the plans that it stands for."""
    state, kept, microbatches = state_bytes(space), kept_bytes(space, opening), microbatches_of(space)
    held = np.zeros(len(space.rows))
    for structure, rows, any_layout in structures(space, opening):
        for count in np.unique(microbatches[rows]).tolist():
            own = rows[microbatches[rows] == count]
            live = live_microbatches(structure, count)[None, :, :, None]
            of_units = state.bytes[state.of_row[own]][:, None, None, :]
            of_units = of_units + kept.bytes[kept.of_row[own]][:, None, None, :] * live
            held[own] = _fullest(structure, of_units, any_layout=any_layout)
    return _reserved(space, held)


def _fullest(structure: Structure, of_units: Floats, *, any_layout: bool) -> Floats:
    """The bytes of the fullest rank, from those of a unit on each rank and chunk, shape (plans, ranks or 1, chunks or 1, units).

    With any layout: the fullest rank holds no less than any weighted mean of the ranks. With weights that make a layer count the same
    wherever it lies, the mean is known; a layer of another kind counts where it counts least.
    """
    if not any_layout:
        full: Floats = (of_units * structure.units).sum(axis=(2, 3)).max(axis=1)
        return full
    ranks, chunks, _ = structure.units.shape
    least = np.broadcast_to(of_units, (len(of_units), ranks, chunks, of_units.shape[3])).min(axis=2)
    counts = structure.units.sum(axis=(0, 1))
    usual = int(counts[:-2].argmax())
    weights = 1 / least[:, :, usual]
    weights /= weights.sum(axis=1, keepdims=True)
    weighted = least * weights[:, :, None]
    layers = weighted[:, :, :-2].min(axis=1) @ counts[:-2]
    ends = (weighted[:, :, -2:] * structure.units.sum(axis=1)[None, :, -2:]).sum(axis=(1, 2))
    mean: Floats = layers + ends
    return mean


def _reserved(space: Space, held: Floats) -> Floats:
    """The bytes with the allocator's slack, where that falls on the state too."""
    base = space.question.base
    profile = memory_profile_of(base)
    slack = slack_of(base, profile)[0] if profile.fragmentation is None else 0.0
    return held * (1 + slack) * (1 - ROUNDING)


def live_microbatches(structure: Structure, microbatches: int) -> Floats:
    """Microbatches whose activations each chunk holds at one moment before its rank's first backward, shape (ranks, chunks)."""
    ranks, chunks, _ = structure.units.shape
    name = structure.run.plan.schedule
    after = np.arange(ranks)[::-1, None]  # ranks that follow
    if name == "1f1b":
        return np.minimum(microbatches, after + 1).astype(float)
    if name == "afab":
        return np.full((ranks, chunks), float(microbatches))
    if name == "interleaved-1f1b":
        size = round_size(ranks, microbatches)
        turns = chunk_turns(chunks, microbatches, size)[1]
        ahead = np.minimum((chunks - 1) * size + 2 * after.ravel() + 1, len(turns))
        return np.array([np.bincount(turns[:count], minlength=chunks) for count in ahead.tolist()], dtype=float)
    live = np.zeros((ranks, chunks))
    # the chunk with the fewest layers of the rank, whichever one the schedule turns to first
    live[np.arange(ranks), structure.units.sum(axis=2).argmin(axis=1)] = 1.0
    return live
