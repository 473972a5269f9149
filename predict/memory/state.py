"""Weights, gradients and optimizer of a rank: bytes a parameter, and who shares them.

ZeRO-1 (Megatron's distributed optimizer) divides the optimizer over the shard group, ZeRO-2 the gradients too, ZeRO-3 (FSDP)
the weights too (Rajbhandari et al., arXiv 1910.02054, section 5). Experts are divided over the group that replicates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.memory.held import HeldChunk, Unit
from predict.memory.profile import DEEPSPEED, TRANSFORMER_ENGINE, shards_parameters
from predict.run.training_run import TrainingRun
from predict.workload.layers.groups import Groups, groups_of
from predict.workload.layers.local import WIDER, Local
from predict.workload.layers.weights import Weights, padded_vocabulary
from sampling.hardware.cluster import DTYPE_BYTES

FP32 = DTYPE_BYTES["fp32"]
FP8_COPIES_BYTES = 2
"""Transformer Engine keeps an fp8 copy of each weight and one transposed, both cached over microbatches (module/base.py,
`get_weight_workspace`); Blackwell's mxfp8 keeps row-wise and column-wise ones."""


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


def bytes_a_parameter(run: TrainingRun, profile: str, *, is_layers: bool = True) -> BytesAParameter:
    """Of a layer's parameters, or of those at the model's ends."""
    item = weight_bytes(run)
    moments = 1 if run.execution.optimizer == "muon" and is_layers else 2
    if run.execution.whole_layers:
        # plain torch: gradients and both moments are in the weights' own dtype
        return BytesAParameter(weights=item, gradients=item, optimizer=moments * item)
    if item == FP32:
        return BytesAParameter(weights=item, gradients=FP32, optimizer=moments * FP32)
    gradients = gradient_bytes(run, profile)
    copies = _copies(run, profile) if is_layers else 0
    if not run.execution.master_weights:
        return BytesAParameter(weights=item, gradients=gradients, optimizer=moments * item, copies=copies)
    if shards_parameters(profile) and run.plan.zero == 3:
        # the shards are the fp32 weights themselves; those in 16 bits exist while a layer is gathered
        return BytesAParameter(weights=FP32, gradients=gradients, optimizer=moments * FP32)
    return BytesAParameter(weights=item, gradients=gradients, optimizer=(1 + moments) * FP32, copies=copies)


def gradient_bytes(run: TrainingRun, profile: str) -> int:
    """Of a gradient while microbatches are added up."""
    if weight_bytes(run) == FP32:
        return FP32
    if shards_parameters(profile):
        return FP32  # a sharded gradient has the dtype of its fp32 shard (FSDP2, _fsdp_param_group.py)
    if profile == DEEPSPEED:
        if run.precision == "fp16":
            return 2  # ZeRO's fp16 optimizer adds up in fp16 (stage_1_and_2.py), whatever is reduced
        if run.execution.gradient_dtype == "fp32":
            return FP32 + weight_bytes(run)  # its bf16 optimizer keeps both (bf16_optimizer.py)
    return DTYPE_BYTES[run.execution.gradient_dtype]


def _copies(run: TrainingRun, profile: str) -> int:
    return FP8_COPIES_BYTES if run.precision == "fp8" and profile == TRANSFORMER_ENGINE else 0


def state_of_unit(run: TrainingRun, profile: str, unit: Unit, groups: Groups) -> StateBytes:
    each = bytes_a_parameter(run, profile, is_layers=unit.role == "layer")
    zero, held = run.plan.zero, unit.weights
    own = _shared(held, groups)
    return StateBytes(
        parameters=each.weights * (own if zero >= 3 else held.total) + each.copies * held.total,
        gradients=each.gradients * (own if zero >= 2 else held.total),
        optimizer=each.optimizer * (own if zero >= 1 else held.total),
    )


def state_of_rank(run: TrainingRun, profile: str, chunks: Iterable[HeldChunk]) -> StateBytes:
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


def unreduced_bytes(run: TrainingRun, profile: str, unit: Unit, groups: Groups) -> float:
    """A unit's whole gradients before ZeRO-2 or 3 scatters them: as its backward makes them, and as they are sent; where the
    product itself adds to what is sent, that alone."""
    if run.plan.zero < 2:
        return 0.0
    sent = DTYPE_BYTES[run.execution.gradient_dtype]
    made = 0 if profile == TRANSFORMER_ENGINE and run.execution.fuse_gradients else weight_bytes(run)
    return float((made + sent) * _spread(unit.weights, groups))


def head_gradient_bytes(run: TrainingRun, profile: str, unit: Unit) -> float:
    """What the head's backward takes for its matrix where the product adds to a main gradient: Megatron-Core makes an empty
    gradient in the weights' dtype all the same (tensor_parallel/layers.py), beside the input that sequence parallelism gathers
    again. Transformer Engine's linears, which the layers are made of, keep theirs for good (see `buffers`)."""
    if unit.role != "head" or profile != TRANSFORMER_ENGINE or not run.execution.fuse_gradients:
        return 0.0
    local = Local(run=run)
    rows = padded_vocabulary(run.model.vocab, run.plan.tp) // run.plan.tp
    gathered = local.tokens if run.plan.sp else 0
    return float(local.item_bytes * run.model.hidden * (rows + gathered))


def update_bytes(run: TrainingRun, profile: str, state: StateBytes) -> float:
    """What the optimizer's step takes beside the state: DeepSpeed's fp32 copy of its share of the 16-bit gradients
    (stage_1_and_2.py, `single_partition_of_fp32_groups`); fused Adam of the others works in place."""
    if profile != DEEPSPEED or run.precision != "fp16":
        return 0.0
    each = bytes_a_parameter(run, profile)
    return state.optimizer / each.optimizer * FP32
