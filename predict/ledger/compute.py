"""The compute book: FLOPs that the step requires, by part, and the operators that do them, each with its time."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from predict.ledger.conventions import CORES, ENDS, Part, PartFlops, forward_parts, require_counted
from predict.model.spec import LayerKind
from predict.prices.price_list import Prices
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.run.vision import ALL, NONE
from predict.step.breakdown import DP, P2P, Item, items_of_block, items_of_call
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket, PricedBlock, total_us
from predict.step.priced_rank import BUCKETS, PricedRank, action_counts
from predict.workload.decompose import RankCalls
from predict.workload.layer import ACCUMULATION, RECOMPUTE
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective
from sampling.operators.memory_bound import Stream
from sampling.speed_of_light import physical_bound_us


@dataclass(frozen=True, kw_only=True, slots=True)
class StepItem:
    """An item of a block, and how often a pipeline rank runs the block in a step, on the mean over the ranks."""

    item: Item
    runs: float
    again: bool = False
    """Whether recomputation repeats it."""
    at_end: bool = False
    """Whether it runs once after the last microbatch."""

    @property
    def time_us(self) -> float:
        return self.runs * self.item.time_us

    @property
    def alone_us(self) -> float:
        return self.runs * self.item.alone_us

    @property
    def calls(self) -> float:
        """Times that the call runs in a step."""
        return self.runs * self.item.count

    @property
    def is_message(self) -> bool:
        """Whether it is communication, a copy that is part of it, or a pipeline action with its send."""
        return self.item.beside or self.item.heading == P2P or isinstance(self.item.call, Collective)


def step_items(prediction: Prediction, of_ranks: Collection[int] | None = None) -> tuple[StepItem, ...]:
    """The items of a step on the mean of the pipeline ranks `of_ranks`, by default all; their times add up to the time in which such a
    rank does not wait, and what sends add to the step."""
    chosen = tuple(range(len(prediction.ranks)) if of_ranks is None else of_ranks)
    share = 1 / len(chosen)
    found: list[StepItem] = []
    for priced, (runs, backward) in _runs_of_blocks(prediction, chosen).items():
        found += _of_block(priced, runs * share, backward=backward, prices=prediction.prices)
    for place in chosen:
        found += _end_of_step(prediction.ranks[place], prediction.calls[place], share, prediction.prices)
    return (*found, *_sends(prediction, chosen))


def _runs_of_blocks(prediction: Prediction, chosen: Collection[int]) -> dict[PricedBlock, tuple[float, bool]]:
    """The times that the chosen pipeline ranks together run each block, and whether in a backward."""
    found: dict[PricedBlock, tuple[float, bool]] = {}
    all_counts = action_counts(prediction.timeline.order)
    for rank, counts in ((prediction.ranks[place], all_counts[place]) for place in chosen):
        for chunk, count in zip(rank.chunks, counts, strict=True):
            for kind, bucket in BUCKETS.items():
                for repeated in getattr(chunk, bucket).blocks if count[kind] else ():
                    before, _ = found.get(repeated.priced, (0.0, False))
                    found[repeated.priced] = (before + count[kind] * repeated.count, kind != "F")
    return found


def _of_block(priced: PricedBlock, runs: float, *, backward: bool, prices: Prices) -> Iterator[StepItem]:
    whole = priced.block.heading
    for item in items_of_block(priced, prices):
        named = replace(item, heading=whole) if whole == ACCUMULATION else item
        yield StepItem(item=named, runs=runs, again=whole == RECOMPUTE or (backward and _repeats(item)))


def _repeats(item: Item) -> bool:
    """Whether an item of a backward is the forward of an operator, which selective recomputation repeats there."""
    has_backward = item.call is not None and "backward" in item.call.PHASES and not isinstance(item.call, Stream)
    return has_backward and item.phase == "forward"


def _end_of_step(rank: PricedRank, calls: RankCalls, share: float, prices: Prices) -> Iterator[StepItem]:
    """Gradients over the replicas and updated weights back to them, each by what it adds to the step; and the optimizer."""
    found = [
        *_blocking(calls.end.blocking_reduction, prices),
        *_items(calls.end.shared_weights_reduction, prices),
        *_by_exposed(rank.gradient_reduction, rank.exposed_reduction_us, prices),
        *_by_exposed(rank.parameter_all_gather, rank.exposed_all_gather_us, prices),
    ]
    for item in found:
        yield StepItem(item=replace(item, heading=DP, beside=True), runs=share, at_end=True)
    for repeated in rank.optimizer.blocks:
        for item in items_of_block(repeated.priced, prices):
            yield StepItem(item=item, runs=share, at_end=True)


def _items(calls: Iterable[Counted], prices: Prices) -> Iterator[Item]:
    for one in calls:
        yield from items_of_call(one, prices)


def _blocking(calls: tuple[Counted, ...], prices: Prices) -> Iterator[Item]:
    """The reduction that was measured together with a backward: a difference of two times, which stands under its collective."""
    if all(isinstance(one.call, Collective) for one in calls):
        yield from _items(calls, prices)
        return
    units = prices.priced(calls)
    added_us = max(0.0, total_us(units))
    parts = [part for one in calls for part in prices.parts(one) if isinstance(part.call, Collective) and one.count > 0]
    alone_us = total_us(parts)
    for part in parts:
        share = part.total_us / alone_us
        yield Item(
            heading=DP,
            time_us=added_us * share,
            alone_us=part.total_us,
            count=part.count,
            call=part.call,
            phase=part.phase,
            source=units[0].time.source,
            group="dp",
        )


def _by_exposed(bucket: Bucket, exposed_us: float, prices: Prices) -> Iterator[Item]:
    """The items of a bucket whose `exposed_us` counts."""
    share = exposed_us / bucket.median_us if bucket.median_us else 0.0
    for repeated in bucket.blocks:
        for item in items_of_block(repeated.priced, prices):
            yield replace(item, time_us=item.time_us * share)


def _sends(prediction: Prediction, chosen: Collection[int]) -> Iterator[StepItem]:
    """The sends between pipeline ranks, forward and back, by what they add to the step all together."""
    all_counts = action_counts(prediction.timeline.order)
    found = [
        StepItem(item=item, runs=2 * count["F"] / len(chosen))
        for place in chosen
        for chunk, count in zip(prediction.ranks[place].chunks, all_counts[place], strict=True)
        for repeated in chunk.send.blocks
        for item in items_of_block(repeated.priced, prediction.prices)
    ]
    alone_us = sum(each.alone_us for each in found)
    added_us = prediction.exposed_p2p_us
    for each in found:
        exposed_us = added_us * each.item.alone_us / alone_us if alone_us else 0.0
        yield replace(each, item=replace(each.item, heading=P2P, time_us=exposed_us, beside=True))


Shares = Mapping[tuple[Part, str], float]
"""Part and name of the kind of layer (empty outside of layers) → share of its forward that a backward repeats."""
OF_MODULE: Mapping[str, tuple[Part, ...]] = {
    "core_attn": CORES,
    "mlp": ("dense_feed_forward",),
    "moe": ("router", "expert_feed_forward", "shared_expert"),
    "shared_experts": ("shared_expert",),
}
"""Module of selective recomputation → its parts. Norms and activations have no products; of the modules that only some mixers
have, the mixer says what they repeat."""
IN_LAYERS: tuple[Part, ...] = tuple(part for part in get_args(Part) if part not in (*ENDS, "mtp"))
HALF = 0.5
"""Share of the products that recomputation by operators repeats: every second one."""


def repeated_forward(run: TrainingRun) -> Shares:
    """The shares of a run; none where it repeats nothing. Layers of multi-token prediction are never repeated."""
    if run.plan.recompute == "full":
        return _whole_layers(run)
    kinds = dict.fromkeys(run.model.kinds())
    return {(part, kind.name): share for kind in kinds for part, share in _parts(run, kind).items()}


def _whole_layers(run: TrainingRun) -> Shares:
    """Full recomputation, of all layers or of the first ones of each chunk, and of the head where a framework repeats it."""
    taken: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for stage in (stage for of_rank in stages_of_ranks(run) for stage in of_rank):
        held.update(kind.name for kind in stage.kinds)
        taken.update(kind.name for kind in stage.kinds[: run.plan.fully_recomputed(len(stage.kinds))])
    shares: dict[tuple[Part, str], float] = {
        (part, name): taken[name] / many for name, many in held.items() for part in IN_LAYERS
    }
    if run.execution.recompute_ends:
        shares["head_and_loss", ""] = 1.0
    return shares


def _parts(run: TrainingRun, kind: LayerKind) -> dict[Part, float]:
    if run.plan.recompute == "ops":
        return {part: HALF for part in IN_LAYERS if part not in CORES}
    modules = run.plan.modules_recomputed
    shares = {part: 1.0 for module in modules for part in OF_MODULE.get(module, ())}
    mixer = run.model.mixer(kind)
    for module in modules:
        if module in mixer.RECOMPUTABLE:
            shares["attention_projections"] = mixer.repeated_share(run.model, module)
    return shares


TRAINING = 3
"""Forward and backward over forward: the backward has two products for each of the forward."""

ROUNDING = 1e-12
"""Share of the operators' time; an operator below it is what rounding leaves of calls that cancel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartOfStep:
    """FLOPs of one part in a step, over all GPUs: forward, backward, and the forward that recomputation repeats."""

    part: Part
    layer: str
    layers: int
    forward_flops: float
    backward_flops: float
    recompute_flops: float

    @property
    def required_flops(self) -> float:
        return self.forward_flops + self.backward_flops


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorTime:
    """One operator in one phase, on a GPU of the mean pipeline rank. Times that belong to no call have none."""

    heading: str
    again: bool
    """Whether recomputation repeats it."""
    call: Call | None
    phase: Phase | None
    source: str
    count: float
    """Times that it runs in a step."""
    total_us: float
    flops: float
    """FLOPs of its products in a step that the kernel executes."""
    bound_us: float | None
    """The least time of all its runs that the device's peaks allow; None for times that belong to no call."""

    @property
    def each_us(self) -> float:
        return self.total_us / self.count if self.count else 0.0

    @property
    def over_bound(self) -> float | None:
        """Predicted over least possible time: the headroom; None where nothing bounds it."""
        return self.total_us / self.bound_us if self.bound_us else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeBook:
    """FLOPs by part over all GPUs, and the time of every operator on one GPU."""

    parts: tuple[PartOfStep, ...]
    optimizer_flops: float
    """Products of the optimizer on all GPUs: those of Muon; AdamW has none."""
    operators: tuple[OperatorTime, ...]
    """The longest first."""
    tokens: int
    gpus: int

    @property
    def required_flops(self) -> float:
        return sum(part.required_flops for part in self.parts)

    @property
    def recompute_flops(self) -> float:
        return sum(part.recompute_flops for part in self.parts)

    @property
    def total_us(self) -> float:
        """Time of all operators on the mean pipeline rank."""
        return sum(operator.total_us for operator in self.operators)


def compute_book(run: TrainingRun, calls: Sequence[RankCalls], items: Iterable[StepItem]) -> ComputeBook:
    """The book of a step by the calls of its pipeline ranks and their items; ConfigError for a model whose layers the exact count
    does not know."""
    require_counted(run.model, "exact")
    again = repeated_forward(run)
    parts = forward_parts(run.model, run.sequences, mtp=bool(run.model.mtp_layers))
    return ComputeBook(
        parts=(*_tower_parts(run), *(_part_of_step(part, again) for part in parts)),
        optimizer_flops=_optimizer_flops(run, calls),
        operators=operators_of(run, (each for each in items if not each.is_message)),
        tokens=sum(length * count for length, count in run.sequences.items()),
        gpus=run.cluster.world_size,
    )


def _optimizer_flops(run: TrainingRun, calls: Sequence[RankCalls]) -> float:
    gpus_of_rank = run.cluster.world_size / run.plan.pp
    return gpus_of_rank * sum(
        one.count * one.call.flops(one.phase)
        for rank in calls
        for one in rank.end.optimizer
        if isinstance(one.call, Operator)
    )


def _tower_parts(run: TrainingRun) -> Iterator[PartOfStep]:
    """The vision tower over the images of a step, and its projectors, or the encoder; what is not trained has no backward."""
    tower, trained = run.tower, run.vision.trained
    if tower is None:
        return
    model, batch = tower.model, tower.batch
    *own, projectors = forward_parts(model, {batch.seq_len: batch.global_}, mtp=False)
    layers = sum(part.forward for part in own)
    again = run.plan.fully_recomputed(model.layers) / model.layers * sum(part.forward for part in own if part.layer)
    found: tuple[tuple[Part, int, bool, float], ...] = (
        ("vision_tower", layers, trained == ALL, again),
        ("vision_projector", projectors.forward, trained != NONE, 0.0),
    )
    if run.model.is_encoder_decoder:
        found = (("encoder", layers, trained == ALL, again),)
    for name, forward, is_trained, repeated in found:
        yield PartOfStep(
            part=name,
            layer="",
            layers=1,
            forward_flops=float(forward),
            backward_flops=float(is_trained * (TRAINING - 1) * forward),
            recompute_flops=float(is_trained * repeated),
        )


def _part_of_step(part: PartFlops, again: Shares) -> PartOfStep:
    return PartOfStep(
        part=part.part,
        layer=part.layer,
        layers=part.layers,
        forward_flops=float(part.forward),
        backward_flops=float((TRAINING - 1) * part.forward),
        recompute_flops=again.get((part.part, part.layer), 0.0) * part.forward,
    )


def operators_of(run: TrainingRun, items: Iterable[StepItem]) -> tuple[OperatorTime, ...]:
    """The items of a step with equal calls together, the longest first."""
    alike: dict[tuple[object, ...], list[StepItem]] = {}
    for each in items:
        item = each.item
        alike.setdefault((item.heading, each.again, item.call, item.phase, item.source), []).append(each)
    lines = [_operator(run, members) for members in alike.values()]
    nothing_us = ROUNDING * sum(line.total_us for line in lines)
    return tuple(sorted((line for line in lines if abs(line.total_us) > nothing_us), key=lambda line: -line.total_us))


def _operator(run: TrainingRun, members: list[StepItem]) -> OperatorTime:
    first, count = members[0], sum(each.calls for each in members)
    call, phase = first.item.call, first.item.phase
    flops, bound_us = 0.0, None
    if call is not None and phase is not None:
        bound_us = count * physical_bound_us(call, phase, run.cluster)
        flops = count * call.executed_flops(phase) if isinstance(call, Operator) else 0.0
    return OperatorTime(
        heading=first.item.heading,
        again=first.again,
        call=call,
        phase=phase,
        source=first.item.source or "assumed",
        count=count,
        total_us=sum(each.time_us for each in members),
        flops=flops,
        bound_us=bound_us,
    )
