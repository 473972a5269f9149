"""The compute book: FLOPs that the step requires, by part, and the operators that do them, each with its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from predict.ledger.conventions.inputs import require_counted
from predict.ledger.conventions.parts import CORES, ENDS, Part, PartFlops, forward_parts
from predict.ledger.work import StepItem
from predict.model.spec import LayerKind
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.workload.decompose import RankCalls
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.speed_of_light import physical_bound_us

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
"""Share of the operators' time below which that of one is what rounding leaves of calls that cancel."""


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
        parts=tuple(_part_of_step(part, again) for part in parts),
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
