"""Weights, gradients and optimizer of a rank: bytes a parameter, and who shares them.

ZeRO-1 (Megatron's distributed optimizer) divides the optimizer over the shard group, ZeRO-2 the gradients too, ZeRO-3 (FSDP)
the weights too (Rajbhandari et al., arXiv 1910.02054, section 5). Experts are divided over the group that replicates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.memory.held import HeldChunk, Unit
from predict.memory.memory_profile import MemoryProfile
from predict.run.training_run import TrainingRun
from predict.workload.rank.groups import Groups, groups_of
from predict.workload.rank.share import WIDER, RankShare
from predict.workload.rank.weights import Weights, padded_vocabulary
from sampling.hardware.cluster import DTYPE_BYTES

FP32 = DTYPE_BYTES["fp32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Of one rank."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0

    def __add__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            parameters=self.parameters + other.parameters,
            gradients=self.gradients + other.gradients,
            optimizer=self.optimizer + other.optimizer,
        )

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class BytesAParameter:
    """Before anything is shared out. `copies` are weights that every rank keeps whole whatever is sharded."""

    weights: int
    gradients: int
    optimizer: int
    copies: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.copies


def weight_bytes(run: TrainingRun) -> int:
    """Of a weight as layers multiply with it."""
    return DTYPE_BYTES[WIDER.get(run.precision, run.precision)]


def bytes_a_parameter(run: TrainingRun, profile: MemoryProfile, *, is_layers: bool = True) -> BytesAParameter:
    """Of a layer's parameters, or of those at the model's ends."""
    item = weight_bytes(run)
    moments = 1 if run.execution.optimizer == "muon" and is_layers else 2
    if run.execution.whole_layers:
        # plain torch: gradients and both moments are in the weights' own dtype
        return BytesAParameter(weights=item, gradients=item, optimizer=moments * item)
    if item == FP32:
        return BytesAParameter(weights=item, gradients=FP32, optimizer=moments * FP32)
    gradients = profile.gradient_bytes(run)
    copies = profile.fp8_weight_copies_bytes if is_layers and run.precision == "fp8" else 0
    if not run.execution.master_weights:
        return BytesAParameter(weights=item, gradients=gradients, optimizer=moments * item, copies=copies)
    if profile.fp32_shards and run.plan.zero == 3:
        # the shards are the fp32 weights themselves; those in 16 bits exist while a layer is gathered
        return BytesAParameter(weights=FP32, gradients=gradients, optimizer=moments * FP32)
    return BytesAParameter(weights=item, gradients=gradients, optimizer=(1 + moments) * FP32, copies=copies)


def state_of_unit(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> StateBytes:
    each = bytes_a_parameter(run, profile, is_layers=unit.role == "layer")
    zero, held = run.plan.zero, unit.weights
    own = _shared(held, groups)
    return StateBytes(
        parameters=each.weights * (own if zero >= 3 else held.total) + each.copies * held.total,
        gradients=each.gradients * (own if zero >= 2 else held.total),
        optimizer=each.optimizer * (own if zero >= 1 else held.total),
    )


def state_of_rank(run: TrainingRun, profile: MemoryProfile, chunks: Iterable[HeldChunk]) -> StateBytes:
    groups = groups_of(run)
    return sum(
        (state_of_unit(run, profile, unit, groups) for chunk in chunks for unit in chunk.units),
        StateBytes(),
    )


def _shared(held: Weights, groups: Groups) -> float:
    """Elements on one rank of the shard groups; a share of a parameter counts as such, padding of shards does not."""
    return held.dense / groups.shard.ranks + held.experts / groups.expert_shard.ranks


def gathered_bytes(run: TrainingRun, unit: Unit, groups: Groups) -> float:
    """A unit's whole weights, as ZeRO-3 collects them before its forward and again before its backward."""
    return float(weight_bytes(run) * _spread(unit.weights, groups)) if run.plan.zero == 3 else 0.0


def _spread(held: Weights, groups: Groups) -> int:
    """Elements of which this rank keeps a share alone."""
    return held.dense * (groups.shard.ranks > 1) + held.experts * (groups.expert_shard.ranks > 1)


def unreduced_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> float:
    """A unit's whole gradients before ZeRO-2 or 3 scatters them: as its backward makes them, and as they are sent; where the
    product itself adds to what is sent, that alone."""
    if run.plan.zero < 2:
        return 0.0
    sent = DTYPE_BYTES[run.execution.gradient_dtype]
    made = 0 if profile.dummy_gradients and run.execution.fuse_gradients else weight_bytes(run)
    return float((made + sent) * _spread(unit.weights, groups))


def head_gradient_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit) -> float:
    """What the head's backward takes for its matrix where the product adds to a main gradient: Megatron-Core makes an empty
    gradient in the weights' dtype all the same (tensor_parallel/layers.py), beside the input that sequence parallelism gathers
    again. Transformer Engine's linears, which the layers are made of, keep theirs for good (see `buffers`)."""
    if unit.role != "head" or not (profile.dummy_gradients and run.execution.fuse_gradients):
        return 0.0
    rank = RankShare(run=run)
    rows = padded_vocabulary(run.model.vocab, run.plan.tp) // run.plan.tp
    gathered = rank.tokens if run.plan.sp else 0
    return float(rank.item_bytes * run.model.hidden * (rows + gathered))


def update_bytes(run: TrainingRun, profile: MemoryProfile, state: StateBytes) -> float:
    """What the optimizer's step takes beside the state: DeepSpeed's fp32 copy of its share of the 16-bit gradients
    (stage_1_and_2.py, `single_partition_of_fp32_groups`); fused Adam of the others works in place."""
    if not profile.fp32_update_copies or run.precision != "fp16":
        return 0.0
    each = bytes_a_parameter(run, profile)
    return state.optimizer / each.optimizer * FP32
