"""The blocks of one layer of a kind on one rank: its forward, the repeated forward of recomputation, and its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from predict.layers.attention import CORE, heads_on_rank
from predict.layers.embedding import embedding_module
from predict.layers.head import head_modules, joining_module
from predict.layers.part import parts_of
from predict.model.spec import DENSE, LayerKind
from predict.rank.blocks import Block, Calls, Launching, OverlappedCommunication
from predict.rank.gradient_sums import gradient_sums
from predict.rank.module import Exchange, Module, Work, with_calls, work_of
from predict.rank.sharded_weights import sharded_backward, sharded_forward, sharded_gradients
from predict.rank.share import RankShare
from predict.rank.weights import Weights, embedding_weights, head_weights, layer_weights
from predict.workload.launches import launchings, launchings_of_end
from predict.workload.whole_layers import layer_call
from sampling.arithmetic.operator import Operator
from sampling.call import Counted, Phase
from sampling.cells.layer import DenseLayer
from sampling.collectives.kinds import AllGather
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.streaming import Stream

RECOMPUTE, ACCUMULATION = "recompute", "gradient_accumulation"
FUSED_SHARE = 0.35
"""Share of the traffic of adding to a gradient that the weight's own product takes longer by, if it adds: 0.36 on the A100 PCIe and
0.24 to 0.39 on the B200 in SimuMax's samples of products that accumulate in fp32, over forward ones of the same size."""
Sharded = Callable[[RankShare, Weights, Calls], tuple[OverlappedCommunication, ...]]
"""Communication of a layer's sharded weights beside the calls of a phase."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerBlocks:
    """Blocks of one layer. `again` is the forward that full recomputation repeats; the backward includes selective recomputation,
    but not the accumulation of gradients."""

    forward: Block
    again: Block
    backward: Block
    halves: Callable[[], tuple[Block, Block]]
    """Those of the backward, by input and by weights; made when they are first asked for, since few schedules run them."""
    accumulation: Block

    @property
    def backward_input(self) -> Block:
        return self.halves()[0]

    @property
    def backward_weight(self) -> Block:
        return self.halves()[1]


def layer_modules(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    """Mixer and feed-forward, each between the norm before it and what adds it to the residual stream."""
    norm = Module(name="layernorm", works=((rank.norm(), 1),))
    residual = Module(name="residual", works=rank.residual())
    after = (norm,) if rank.model.norms_a_layer > 2 else ()
    return tuple(
        module for part in parts_of(rank.model, kind) for module in (norm, *part.modules(rank, kind), residual, *after)
    )


def layer_blocks(rank: RankShare, kind: LayerKind) -> LayerBlocks:
    weights = layer_weights(rank.model, rank.plan, kind)
    sums, whole = gradient_sums(rank, kind), whole_layer(rank, kind)
    modules, launched = layer_modules(rank, kind), launchings(rank, kind)
    return blocks_of(rank, modules, weights, launched=launched, sums=sums, whole=whole)


def whole_layer(rank: RankShare, kind: LayerKind) -> DenseLayer | None:
    """A whole dense layer as wide as this rank's share of one; None for layers that it does not represent."""
    model, tp = rank.model, rank.plan.tp
    plain = kind == DENSE and model.attention.IS_PLAIN and rank.plan.cp == 1 and not model.qk_norm
    if not plain or rank.execution.attention == "unfused":
        return None
    heads, kv_heads = heads_on_rank(model, tp)
    shape = {"heads": heads, "kv_heads": kv_heads, "ffn": model.ffn // tp, "tp": 1, "sp": False, "group_nodes": 1}
    fused = rank.execution.elementwise == "fused"  # a compiled layer stands for whichever way the framework fuses
    return DenseLayer(**{**layer_call(rank.run).fields(), "dtype": rank.dtype, **shape, "compiled": fused})


def blocks_of(
    rank: RankShare,
    modules: tuple[Module, ...],
    weights: Weights,
    *,
    launched: Mapping[Phase, Launching],
    sums: Calls = (),
    whole: DenseLayer | None = None,
) -> LayerBlocks:
    """Blocks of modules with these weights, and with the launching of their phases. `sums` are those of the gradients of
    activations; `whole` is the same layer as one call."""
    forward, backward = work_of(modules, "forward"), with_calls(work_of(modules, "backward"), sums)
    again = work_of(_recomputed_parts(rank, modules), "forward")

    def block(work: Work, sharded: Sharded | None = None, *, phase: Phase, heading: str = "") -> Block:
        return Block(
            calls=work.calls,
            overlapped=work.overlapped + (sharded(rank, weights, work.calls) if sharded else ()),
            launching=launched.get(phase),
            synchronous=rank.execution.synchronous_launches,
            heading=heading,
            whole=Counted(call=whole, phase=phase) if whole and phase in ("forward", "backward") else None,
        )

    def halves() -> tuple[Block, Block]:
        by_input = with_calls(work_of(modules, "backward_input"), sums)
        return (
            block(by_input, sharded_forward, phase="backward_input"),
            block(work_of(modules, "backward_weight"), sharded_gradients, phase="backward_weight"),
        )

    repeated = Work(calls=again.calls + backward.calls, overlapped=again.overlapped + backward.overlapped)
    return LayerBlocks(
        forward=block(forward, sharded_forward, phase="forward"),
        again=block(forward, heading=RECOMPUTE, phase="forward"),
        backward=block(repeated, sharded_backward, phase="backward"),
        halves=cache(halves),
        accumulation=accumulation_block(rank, weights),
    )


def _recomputed_parts(rank: RankShare, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """The part of the layer that a backward repeats, where it does not repeat all of it: the modules named, or by operators half of each
    product, which stands for every second one, and all else but attention. Of communication only what is gathered is repeated:
    torchtitan keeps what reductions made (activation_checkpoint.py)."""
    if rank.plan.recompute != "ops":
        return tuple(module for module in modules if module.is_among(rank.plan.modules_recomputed))
    return tuple(
        replace(
            module,
            works=tuple((call, _repeated_share(call) * count) for call, count in module.works),
            exchanges=tuple(filter(_gathers, module.exchanges)),
        )
        for module in modules
        if module.name != CORE
    )


def _repeated_share(call: Operator) -> float:
    return 0.5 if call.KIND == "gemm" else 1.0


def _gathers(exchange: Exchange) -> bool:
    return all(isinstance(counted.call, AllGather) for counted in exchange.forward)


def accumulation_block(rank: RankShare, weights: Weights) -> Block:
    """Memory traffic of adding to the gradients of earlier microbatches, which all microbatches but the first do, and of the first's
    copy to the dtype of the sum."""
    return Block(calls=(*_first_copies(rank, weights), *_additions(rank, weights)), heading=ACCUMULATION)


def _first_copies(rank: RankShare, weights: Weights) -> Calls:
    """Whole gradients that no product adds to the sum, copied to its wider dtype: each is read and written."""
    execution, plan = rank.execution, rank.plan
    sum_bytes = DTYPE_BYTES[execution.gradient_dtype]
    if execution.fuse_gradients or plan.zero or plan.dp > 1 or sum_bytes <= rank.item_bytes:
        return ()
    call = Stream(dtype=rank.dtype, size_bytes=(rank.item_bytes + sum_bytes) * weights.total)
    return (Counted(call=call, phase="forward", count=1 / rank.run.microbatches),)


def _additions(rank: RankShare, weights: Weights) -> Calls:
    microbatches = rank.run.microbatches
    if microbatches == 1:
        return ()
    # the sum is read and written; a pass of its own reads the new gradients too
    fused = rank.execution.fuse_gradients and rank.plan.zero < 2
    moved = 2 * DTYPE_BYTES[rank.execution.gradient_dtype] + (0 if fused else rank.item_bytes)
    dense, experts = weights.dense, weights.experts
    if rank.plan.zero >= 2:
        dense, experts = dense // rank.groups.shard.ranks, experts // rank.groups.expert_shard.ranks
    call = Stream(dtype=rank.dtype, size_bytes=max(1, moved * (dense + experts)))
    seen = FUSED_SHARE if fused else 1.0
    # experts have few rows each, so that their products are no longer than the traffic
    share = (seen * dense + experts) / max(1, dense + experts)
    return (Counted(call=call, phase="forward", count=share * (microbatches - 1) / microbatches),)


def embedding_blocks(rank: RankShare) -> LayerBlocks:
    modules = (embedding_module(rank),)
    launched = launchings_of_end(rank, "embedding")
    return blocks_of(rank, modules, embedding_weights(rank.model, rank.plan), launched=launched)


def head_blocks(rank: RankShare, *, shares_embedding: bool) -> LayerBlocks:
    """The final norm, the logits, their loss; for every further token that is predicted, a layer and a head again."""
    modules = head_modules(rank)
    for _ in range(rank.model.mtp_layers):
        modules += (joining_module(rank), *layer_modules(rank, rank.model.mtp_kind), *head_modules(rank))
    weights = head_weights(rank.model, rank.plan, shares_embedding=shares_embedding)
    return blocks_of(rank, modules, weights, launched=launchings_of_end(rank, "head"))
