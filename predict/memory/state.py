"""Weights, gradients and optimizer state of a rank: bytes per parameter, and the ranks that share them.

ZeRO-1 (Megatron's distributed optimizer) divides the optimizer state over the shard group, ZeRO-2 the gradients too, ZeRO-3
(FSDP) the weights too (Rajbhandari et al., arXiv 1910.02054, section 5). Experts are divided over the group that replicates them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from predict.layers.adapters import quantised_in_layer, stored_bytes, trained_in_layer
from predict.layers.latent import LatentAttention
from predict.model.spec import DENSE, LayerKind
from predict.rank.groups import Groups, groups_of
from predict.rank.share import (
    NARROW,
    RankShare,
    Weights,
    embedding_weights,
    is_primary_fp8,
    joining_weights,
    layer_weights,
    narrow_item_bytes,
    output_weights,
    padded_vocabulary,
    weight_bytes,
)
from predict.run.memory_profile import FSDP, MemoryProfile
from predict.run.offload import DISK, GPU, HOST, Offload
from predict.run.stages import Stage, stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from predict.workload.whole_layers import are_priced_whole, plain_embedding, plain_head, plain_layer
from sampling.cells.matrices import Shape, products_on_rank
from sampling.hardware.cluster import BLOCK_SCALED_BYTES, DTYPE_BYTES

Role = Literal["embedding", "layer", "joining", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A piece of a chunk that is computed, and gathered by FSDP, as a whole."""

    role: Role
    weights: Weights
    kind: LayerKind | None = None
    """The kind of a layer; None for the other roles."""
    recompute: str = "none"
    tower: str = ""
    """`vision` for one of the vision tower's, whose head are the projectors; `encoder` for one of an encoder's."""
    further: bool = False
    """Whether it predicts a token beyond the next, beside the model's own layers and head."""

    @property
    def is_narrow(self) -> bool:
        """Whether its products are in the run's precision: a layer's, unless they stay wide."""
        return self.kind is not None and not self.kind.wide

    @property
    def name(self) -> str:
        """The name that benchmarks and reports give it: embedding, full_dense, full_moe, head."""
        return "_".join(
            filter(None, [self.tower, "mtp" if self.further else "", self.kind.name if self.kind else self.role])
        )

    @property
    def of_tower(self) -> bool:
        """Whether it is none of the text's."""
        return bool(self.tower)


class ChunkUnits(NamedTuple):
    """The units of a chunk in the order of a microbatch's forward."""

    units: tuple[Unit, ...]

    @property
    def layers(self) -> int:
        """The model's own layers, without those of multi-token prediction and of a tower."""
        return sum(unit.role == "layer" and not unit.of_tower and not unit.further for unit in self.units)


def chunks_of_ranks(run: TrainingRun) -> tuple[tuple[ChunkUnits, ...], ...]:
    """The chunks of each pipeline rank. The run's schedule is a named one, not `best`."""
    of_kind = {kind: _weights(run, kind) for kind in dict.fromkeys(run.model.kinds())}
    return tuple(tuple(_chunk(run, stage, of_kind) for stage in stages) for stages in stages_of_ranks(run))


def _chunk(run: TrainingRun, stage: Stage, of_kind: dict[LayerKind, Weights]) -> ChunkUnits:
    units = [*tower_units(run), embedding_unit(run)] if stage.first else []
    recompute = run.plan.recompute
    again = run.plan.fully_recomputed(len(stage.kinds))
    for place, kind in enumerate(stage.kinds):
        repeats = "none" if recompute == "full" and place >= again else recompute
        units.append(Unit(role="layer", kind=kind, weights=of_kind[kind], recompute=repeats))
    if stage.last:
        units += head_units(run, shares_embedding=stage.shared_table, has_embedding=not stage.further_embedding)
    return ChunkUnits(units=tuple(units))


def tower_units(run: TrainingRun) -> list[Unit]:
    """The vision tower and its projectors, or the encoder, in the order of their forward; none without images."""
    tower, projector = run.tower, run.projector
    if tower is None or projector is None:
        return []
    layers = [layer_unit(tower, kind) for kind in tower.model.kinds()]
    repeated = tower.plan.fully_recomputed(len(layers))
    if tower.plan.recompute == "full":
        layers[repeated:] = [replace(layer, recompute="none") for layer in layers[repeated:]]
    own = [embedding_unit(tower), *layers, _head(projector, shares_embedding=False)]
    return [replace(unit, tower="encoder" if run.model.is_encoder_decoder else "vision") for unit in own]


def run_of_unit(run: TrainingRun, unit: Unit) -> TrainingRun:
    """The run that a unit belongs to: of the vision tower's units its own."""
    own = (run.projector if unit.role == "head" else run.tower) if unit.of_tower else None
    return own or run


def layer_unit(run: TrainingRun, kind: LayerKind) -> Unit:
    """A layer, recomputed as the plan says."""
    return Unit(role="layer", kind=kind, weights=_weights(run, kind), recompute=run.plan.recompute)


def _weights(run: TrainingRun, kind: LayerKind) -> Weights:
    if are_priced_whole(run) and kind == DENSE and run.model.attention.IS_PLAIN:
        return Weights(dense=plain_layer(run).elements)
    return layer_weights(run.model, run.plan, kind)


def embedding_unit(run: TrainingRun) -> Unit:
    if not run.execution.whole_layers:
        return Unit(role="embedding", weights=embedding_weights(run.model, run.plan))
    return Unit(role="embedding", weights=Weights(dense=plain_embedding(run).elements))


def head_units(run: TrainingRun, *, shares_embedding: bool, has_embedding: bool) -> list[Unit]:
    """The head, and what predicts more tokens, on a rank that has the embedding or not."""
    head = _head(run, shares_embedding=shares_embedding)
    return [head, *_further_tokens(run, has_embedding=has_embedding)]


def _head(run: TrainingRun, *, shares_embedding: bool) -> Unit:
    if not run.execution.whole_layers:
        return Unit(role="head", weights=output_weights(run.model, run.plan, shares_embedding=shares_embedding))
    return Unit(role="head", weights=Weights(dense=plain_head(run, shares_embedding=shares_embedding).elements))


def _further_tokens(run: TrainingRun, *, has_embedding: bool) -> list[Unit]:
    """Multi-token prediction: for each further token a joining product, a layer and another pass through the head; for all of
    them an embedding, a second one where the rank has none (Megatron-Core, gpt_model.py, `mtp_process`)."""
    model, plan = run.model, run.plan
    kind = model.mtp_kind
    one = [
        Unit(role="joining", weights=joining_weights(model, plan), further=True),
        Unit(role="layer", kind=kind, weights=layer_weights(model, plan, kind), recompute=plan.recompute, further=True),
        Unit(role="head", weights=Weights(), further=True),
    ]
    further = one * model.mtp_layers
    if further and not has_embedding:
        further[0] = replace(further[0], weights=further[0].weights + embedding_weights(model, plan))
    return further


def weights_of_chunks(chunks: tuple[ChunkUnits, ...]) -> Weights:
    """All weights of a rank, whose chunks these are."""
    return sum((unit.weights for chunk in chunks for unit in chunk.units), Weights())


def linear_shapes(run: TrainingRun, kind: LayerKind) -> frozenset[Shape]:
    """[out, in] of the linear modules of a layer on one rank, without duplicates."""
    model, plan = run.model, run.plan
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    divided = (
        (mixer.matrices(model), plan.tp),
        (feed_forward.matrices(model), plan.tp),
        (feed_forward.expert_matrices(model), plan.etp),
    )
    return frozenset(
        shape
        for matrices, ranks in divided
        for shape in products_on_rank((matrix for matrix in matrices if matrix.is_linear), ranks).values()
    )


FP32 = DTYPE_BYTES["fp32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes on one rank."""

    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    on_host: float = 0.0
    """Bytes in the host's memory, which are none of the GPU's."""
    on_disk: float = 0.0
    """Bytes on the host's disks."""

    def __add__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            on_host=self.on_host + other.on_host,
            on_disk=self.on_disk + other.on_disk,
            parameters=self.parameters + other.parameters,
            gradients=self.gradients + other.gradients,
            optimizer=self.optimizer + other.optimizer,
        )

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


IN_BLOCKS = ("blockwise", "mxfp8")
"""Scalings whose rows and columns are quantised apart."""
ANY_LAYOUT = ("blackwell",)
"""Architectures whose fp8 products take matrices that are scaled as a whole in any layout (Transformer Engine,
common/transformer_engine.cpp, nvte_is_non_tn_fp8_gemm_supported: compute capability 10); others need a transpose for the backward."""


def narrow_weight_bytes(run: TrainingRun) -> float:
    """Bytes per weight in fp8 or four bits as its products need it: one copy of its rows and one of its columns, the transpose, or the
    first alone. Four bits are scaled in blocks of rows and of columns (Transformer Engine, tensor/nvfp4_tensor.py,
    NVFP4Quantizer.make_empty)."""
    recipe = run.execution.fp8_recipe
    in_any_layout = recipe not in IN_BLOCKS and run.cluster.gpu.architecture in ANY_LAYOUT
    copies = 1 if run.precision == "fp8" and in_any_layout else 2
    return copies * narrow_item_bytes(run)


def _fp8_shard_bytes(run: TrainingRun) -> float:
    """Bytes per weight in fp8 alone of which Megatron's FSDP keeps shards: MXFP8's rows and columns, of other scalings the rows, whose
    transpose is made while they are gathered for a backward (mixed_precision.py, fp8_need_transpose_data)."""
    return narrow_weight_bytes(run) if run.execution.fp8_recipe == "mxfp8" else narrow_item_bytes(run)


def takes_gradients_as_they_are(run: TrainingRun, profile: MemoryProfile) -> bool:
    """Whether the optimizer reads 16-bit gradients and keeps leaner masters. Of fp8 weights, those with delayed scaling alone; weights of
    products in four bits are bf16 ones (Megatron-Core, optimizer_config.py, use_precision_aware_optimizer_no_fp8_or_ds_fp8)."""
    leaner = (run.execution.master_dtype or profile.master_dtype) != "fp32"
    as_bf16 = run.precision in ("bf16", *BLOCK_SCALED_BYTES)
    return leaner and (as_bf16 or (run.precision == "fp8" and run.execution.fp8_recipe == "delayed"))


def moment_bytes(run: TrainingRun, profile: MemoryProfile) -> int:
    """Bytes of one moment of a parameter."""
    is_latent = isinstance(run.model.attention, LatentAttention)
    usual = (profile.latent_moment_dtype if is_latent else "") or profile.moment_dtype
    return DTYPE_BYTES[run.execution.moment_dtype or usual]


@dataclass(frozen=True, kw_only=True, slots=True)
class BytesPerParameter:
    """Bytes before any sharding. `copies` are copies of the weights that every rank keeps whole under any sharding."""

    weights: float
    gradients: int
    optimizer: int
    copies: float = 0.0


def bytes_per_parameter(run: TrainingRun, profile: MemoryProfile, *, is_layers: bool = True) -> BytesPerParameter:
    """Bytes per parameter of the layers, or of embedding and head, which Muon and narrow products leave out."""
    item = weight_bytes(run)
    moments = 1 if run.execution.optimizer == "muon" and is_layers else 2
    if run.execution.whole_layers:
        # plain torch: gradients and both moments have the dtype of the weights
        return BytesPerParameter(weights=item, gradients=item, optimizer=moments * item)
    kept = moments * moment_bytes(run, profile)
    if item == FP32:
        return BytesPerParameter(weights=item, gradients=FP32, optimizer=kept)
    gradients = profile.gradient_bytes(run)
    if profile.fp32_shards and profile.shard_stage(run) == FSDP and run.execution.master_weights:
        return BytesPerParameter(weights=FP32, gradients=gradients, optimizer=kept)
    weights, copies = float(item), 0.0
    in_fp8_alone = is_layers and is_primary_fp8(run)
    if in_fp8_alone:
        weights = _fp8_shard_bytes(run) if run.plan.zero >= 3 else narrow_weight_bytes(run)
    elif is_layers and run.precision in NARROW and profile.narrow_weight_copies:
        copies = narrow_weight_bytes(run)
    if not run.execution.master_weights:
        return BytesPerParameter(weights=weights, gradients=gradients, optimizer=moments * item, copies=copies)
    # an fp16 master, or what a bf16 weight lacks of an fp32 one, has 16 bits
    is_lean = takes_gradients_as_they_are(run, profile) and not in_fp8_alone
    master = item if is_lean else FP32
    return BytesPerParameter(weights=weights, gradients=gradients, optimizer=master + kept, copies=copies)


def state_of_unit(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> StateBytes:
    """The state of a unit: of weights that stay as they are beside adapters, neither gradients nor moments."""
    each = bytes_per_parameter(run, profile, is_layers=unit.is_narrow)
    zero, trained, base = profile.shard_stage(run), trained_of_unit(run, unit), base_of_unit(run, unit)
    stays = weight_bytes(run) * _sharded_elements(unit.weights, groups) if _stays_gathered(run, profile, unit) else 0

    def kept(weights: Weights, from_stage: int) -> float:
        # fractions of a parameter count as such; the padding of shards is not counted
        of_shard = weights.dense / groups.shard.ranks + weights.experts / groups.expert_shard.ranks
        return of_shard if zero >= from_stage else weights.total

    # where shards are fp32, a frozen base is so on one rank too, and 16 bits exist while they are gathered
    more = FP32 - each.weights if profile.fp32_shards and run.execution.master_weights else 0.0
    few = (each.weights + more - stored_bytes(run)) * kept(quantised_of_unit(run, unit), 3)
    whole = StateBytes(
        parameters=each.weights * kept(base + trained, 3)
        + more * kept(base, 3)
        - few
        + each.copies * unit.weights.total
        + stays,
        gradients=each.gradients * kept(trained, 2),
        optimizer=each.optimizer * kept(trained, 1),
    )
    return _on_gpu(run, whole) if run.offload.any else whole


def _on_gpu(run: TrainingRun, whole: StateBytes) -> StateBytes:
    """The state that is left on the GPU, and that which lies in the host's memory: the shards, the offloaded share of the optimizer's
    state, and a copy of the gradients that it is updated with. What lies on its disks passes through the memory piece by piece."""
    offload, share = run.offload, run.offload.optimizer_share
    shards, state, gradients = whole.parameters, share * whole.optimizer, share * whole.gradients
    on_host = gradients + (offload.shards_on == HOST) * shards + (offload.optimizer_on == HOST) * state
    return StateBytes(
        parameters=whole.parameters - (offload.shards_on != GPU) * shards,
        gradients=whole.gradients - run.sheds_gradients * gradients,
        optimizer=whole.optimizer - state,
        on_host=on_host,
        on_disk=(offload.shards_on == DISK) * shards + (offload.optimizer_on == DISK) * state,
    )


def frozen_beside(run: TrainingRun, profile: MemoryProfile, rank: int) -> StateBytes:
    """The weights of models that run beside the one that trains, sharded as its own are: a reference, unless adapters that are switched
    off leave it, and a teacher."""
    copies = [replace(run, tuning=Tuning())] if run.tuning.keeps_reference and not run.adapters.are_trained else []
    copies += [run.taught_by] if run.taught_by else []
    shards = Offload(shards_on=run.offload.shards_on)  # which is all that a model without an optimizer can leave there
    units = ((each, unit) for each in copies for chunk in chunks_of_ranks(each)[rank] for unit in chunk.units)
    states = (state_of_unit(replace(each, offload=shards), profile, unit, groups_of(each)) for each, unit in units)
    of_weights = [
        StateBytes(parameters=state.parameters, on_host=state.on_host, on_disk=state.on_disk) for state in states
    ]
    return sum(of_weights, StateBytes())


def base_of_unit(run: TrainingRun, unit: Unit) -> Weights:
    """The weights of a unit that stay as they are."""
    return unit.weights if run.adapters.are_trained else Weights()


def quantised_of_unit(run: TrainingRun, unit: Unit) -> Weights:
    """Those of them that are kept in few bits."""
    return quantised_in_layer(run, unit.kind) if unit.kind else Weights()


def trained_of_unit(run: TrainingRun, unit: Unit) -> Weights:
    """The weights of a unit that are trained."""
    if not run.adapters.are_trained:
        return unit.weights
    return trained_in_layer(run, unit.kind) if unit.kind else Weights()


def gathered_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> float:
    """The whole weights of a unit, which ZeRO-3 gathers before its forward and again before its backward."""
    if profile.shard_stage(run) < FSDP or _stays_gathered(run, profile, unit):
        return 0.0
    if unit.is_narrow and is_primary_fp8(run):
        # rows for the forward; for the backward MXFP8's columns, or the rows again (`transposed_bytes`)
        return narrow_item_bytes(run) * _sharded_elements(unit.weights, groups)
    scaled_whole = run.precision == "fp8" and run.execution.fp8_recipe in ("", "tensorwise")
    in_fp8 = profile.fp8_gather and scaled_whole and unit.is_narrow
    all_of_it = run.offload.shards_on != GPU or profile.is_alone(run)
    held = _sharded_elements(base_of_unit(run, unit) + trained_of_unit(run, unit), groups, all_of_it=all_of_it)
    few = _sharded_elements(quantised_of_unit(run, unit), groups, all_of_it=all_of_it)
    item = DTYPE_BYTES["fp8"] if in_fp8 else weight_bytes(run)
    return float(item * held - (item - stored_bytes(run)) * few)


def transposed_bytes(run: TrainingRun, unit: Unit, groups: Groups) -> float:
    """Transposes of gathered fp8 weights, which exist while a unit's backward runs (megatron_fsdp.py, fp8_create_transpose_cache)."""
    if run.plan.zero < 3 or not (unit.is_narrow and is_primary_fp8(run)):
        return 0.0
    return (narrow_weight_bytes(run) - _fp8_shard_bytes(run)) * _sharded_elements(unit.weights, groups)


def _stays_gathered(run: TrainingRun, profile: MemoryProfile, unit: Unit) -> bool:
    """Whether ZeRO-3 leaves the whole weights where they are: Megatron's FSDP releases those of layers alone (megatron_fsdp.py,
    `fsdp_unit_modules`), not of embedding and head."""
    return run.plan.zero >= 3 and profile.megatron_core and unit.role != "layer"


def is_table_of_root(run: TrainingRun, profile: MemoryProfile, unit: Unit) -> bool:
    """Whether a unit is a table that the root module of torch's FSDP holds, since embedding and head share it: it is gathered before the
    first layer, and its gradient reduced after the last (torch, distributed/fsdp/_fully_shard; torchtitan and prime-rl, which shard
    embedding and head by themselves where they are not tied)."""
    shared = unit.role == "embedding" and not unit.of_tower and run.model.tied and run.plan.pp == 1
    return shared and profile.fp32_shards and profile.shard_stage(run) == FSDP


def _sharded_elements(weights: Weights, groups: Groups, *, all_of_it: bool = False) -> int:
    """Elements of which a rank keeps only a shard; all of them where that lies on the host, or where it is the whole in fp32."""
    if all_of_it:
        return weights.total
    return weights.dense * (groups.shard.ranks > 1) + weights.experts * (groups.expert_shard.ranks > 1)


def unreduced_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> float:
    """The whole gradients of a unit before ZeRO-2 or 3 scatters them: as its backward makes them and as they are sent, or only
    as they are sent, where the product itself adds to that buffer."""
    made = 0 if profile.dummy_gradients and run.execution.fuse_gradients else weight_bytes(run)
    return made * _reduced_elements(run, profile, unit, groups) + sent_bytes(run, profile, unit, groups)


def sent_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> float:
    """Those gradients as they are sent."""
    return float(DTYPE_BYTES[run.execution.reduced_dtype] * _reduced_elements(run, profile, unit, groups))


def _reduced_elements(run: TrainingRun, profile: MemoryProfile, unit: Unit, groups: Groups) -> int:
    if profile.shard_stage(run) < 2:
        return 0
    all_of_it = run.sheds_gradients or profile.is_alone(run)
    return _sharded_elements(trained_of_unit(run, unit), groups, all_of_it=all_of_it)


def head_gradient_bytes(run: TrainingRun, profile: MemoryProfile, unit: Unit) -> float:
    """Working set of the head's product in the backward, where it adds to a main gradient: an empty gradient in the dtype of
    the weights (Megatron-Core, tensor_parallel/layers.py). The input that sequence parallelism gathers again and the dummies of the
    layers' products are permanent (`buffers`)."""
    if (
        unit.role != "head"
        or run.adapters.are_trained
        or not (profile.dummy_gradients and run.execution.fuse_gradients)
    ):
        return 0.0
    rank = RankShare(run=run)
    rows = padded_vocabulary(run.model.vocab, run.plan.tp) // run.plan.tp
    return float(rank.item_bytes * run.model.hidden * rows)


def update_bytes(run: TrainingRun, profile: MemoryProfile, state: StateBytes) -> float:
    """Working set of the optimizer's step: an fp32 copy of the 16-bit gradients, where a framework makes one. Fused Adam works
    in place."""
    if not profile.fp32_update_copies or takes_gradients_as_they_are(run, profile):
        return 0.0
    each = bytes_per_parameter(run, profile)
    return 0.0 if each.gradients >= FP32 else state.optimizer / each.optimizer * FP32
