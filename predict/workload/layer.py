"""The blocks of one layer of a kind on one rank: its forward, the repeated forward of recomputation, and its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, starmap
from typing import Literal, NamedTuple, TypeVar

from predict.layers.adapters import (
    before_inputs_gradients,
    frozen,
    gathered_in_head,
    gathered_in_layer,
    trained_in_embedding,
    trained_in_head,
    trained_in_layer,
    with_adapters,
)
from predict.layers.attention import CORE, heads_on_rank
from predict.layers.embedding import embedding_modules
from predict.layers.head import head_modules, joining_module, logits_again
from predict.layers.layer import waiting_on_host
from predict.layers.modulation import modulation_modules
from predict.layers.part import parts_of
from predict.model.spec import DENSE, LayerKind
from predict.rank.blocks import Block, Calls, Launching, OverlappedCommunication, sharing
from predict.rank.exchanges import (
    back_from_host,
    leaving_for_host,
    sharded_backward,
    sharded_forward,
    sharded_gradients,
)
from predict.rank.module import Exchange, Module, Work, Works, after, gradient_sums, with_calls, work_of
from predict.rank.share import RankShare, Weights, embedding_weights, head_weights
from predict.run.execution import ATTENTION_KERNELS
from predict.workload.whole_layers import layer_call
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Counted, Phase
from sampling.cells.layer import DenseLayer
from sampling.collectives.kinds import AllGather
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.attention import Attention
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.operators.routing import Permute, Router, Unpermute

LEFT_TO_THE_HOST: Mapping[str, float] = {"none": 1.0, "layers": 0.5, "full": 0.0}
"""Share of a mixture layer's launches that stay outside of graphs: those of attention, router and preparing the exchange, about half
of some 250, lie in graphs of `layers`; exchange, permutation and experts do not (Megatron-Core, --cuda-graph-scope)."""
BACKWARD = 2.0
"""Launches of a mixture layer's backward over those of its forward: each product has two."""
End = Literal["embedding", "head"]


class Launches(NamedTuple):
    """Launches of forward and backward: of a dense layer, of the embedding, and of the head with its loss."""

    layer: tuple[int, int]
    embedding: tuple[int, int]
    head: tuple[int, int]

    def shares(self, end: End) -> tuple[float, float]:
        """Launches of an end over those of a layer, in forward and backward."""
        forward, backward = self.head if end == "head" else self.embedding
        return forward / self.layer[0], backward / self.layer[1]


ON_ONE_RANK = Launches(layer=(24, 46), embedding=(1, 2), head=(5, 9))
"""Operators that torch 2.13 dispatches for a Llama in plain torch, views left out (the tests count them again)."""
SPREAD = Launches(layer=(17, 40), embedding=(13, 7), head=(28, 17))
"""The same for a GPT of Megatron-LM 2.5 with its vocabulary over tensor-parallel ranks: masks, lookups, positions and dropout, and the
passes of a parallel loss (mpu/layers.py, mpu/cross_entropy.py); a fused kernel or a collective counts as one. Its code runs the parallel
loss on one rank too, which is not distinguished from plain torch."""


def launchings(rank: RankShare, kind: LayerKind) -> Mapping[Phase, Launching]:
    """The launching of one layer of a kind, by phase; the halves of a split backward share the whole one's. Empty where the host
    bounds nothing."""
    execution = rank.execution
    any_layer_us = 0.0 if execution.cuda_graphs == "full" else execution.launch_floor_us
    mixture_us = execution.expert_launch_us * LEFT_TO_THE_HOST[execution.cuda_graphs] if kind.sparse else 0.0
    if not any_layer_us + mixture_us:
        return {}
    forward = Launching(phase="forward", any_layer_us=any_layer_us, mixture_us=mixture_us, as_sampled=not kind.sparse)
    backward = replace(forward, phase="backward", mixture_us=BACKWARD * mixture_us)
    half = replace(backward, share=0.5)
    return {"forward": forward, "backward": backward, "backward_input": half, "backward_weight": half}


def launchings_of_end(rank: RankShare, end: End) -> Mapping[Phase, Launching]:
    """The launching of the embedding, or of the head with its loss, by phase: a share of a dense layer's."""
    execution = rank.execution
    if execution.cuda_graphs == "full" or not execution.launch_floor_us:
        return {}
    spread = rank.plan.tp > 1 and (end == "embedding" or execution.split_loss)
    of_forward, of_backward = (SPREAD if spread else ON_ONE_RANK).shares(end)
    forward = Launching(phase="forward", any_layer_us=execution.launch_floor_us, share=of_forward, as_sampled=False)
    backward = replace(forward, phase="backward", share=of_backward)
    half = replace(backward, share=of_backward / 2)
    return {"forward": forward, "backward": backward, "backward_input": half, "backward_weight": half}


RECOMPUTE, ACCUMULATION = "recompute", "gradient_accumulation"
FUSED_SHARE = 0.35
"""Share of the traffic of adding to a gradient that the weight's own product takes longer by, if it adds: 0.36 on the A100 PCIe and
0.24 to 0.39 on the B200 in SimuMax's samples of products that accumulate in fp32, over forward ones of the same size; 0.20 to 0.31 of
the traffic of 16-bit sums in those that accumulate in bf16 on the B200."""
Sharded = Callable[[RankShare, Weights, Weights, Calls], tuple[OverlappedCommunication, ...]]
"""Communication of a layer's sharded weights that overlaps with the calls of a phase."""
Moved = Callable[[RankShare, float, Calls], tuple[OverlappedCommunication, ...]]
"""Copies of so many bytes to the host or back that overlap with the calls of a phase."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerBlocks:
    """Blocks of one layer. `again` is the forward that full recomputation repeats; the backward, or its half by input, includes selective
    recomputation, but not the accumulation of gradients."""

    forward: Block
    again: Block
    backward: Block
    halves: Callable[[], tuple[Block, Block]]
    """Those of the backward, by input and by weights; made when they are first used, since few schedules run them."""
    accumulation: Block

    def under(self, heading: str) -> LayerBlocks:
        """The same blocks under one heading of the ledger."""

        def named(block: Block) -> Block:
            return replace(block, heading=block.heading or heading)

        halves = self.halves
        return LayerBlocks(
            forward=named(self.forward),
            again=self.again,
            backward=named(self.backward),
            halves=cache(lambda: (named(halves()[0]), named(halves()[1]))),
            accumulation=self.accumulation,
        )

    @property
    def backward_input(self) -> Block:
        return self.halves()[0]

    @property
    def backward_weight(self) -> Block:
        return self.halves()[1]


def layer_modules(rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
    """Mixer and feed-forward, each between the norm before it and what adds it to the residual stream."""
    rank = rank.of_layer(kind)
    norm = Module(name="layernorm", works=((rank.norm(), 1),))
    residual = Module(name="residual", works=rank.residual(kind))
    after = (norm,) if rank.model.norms_a_layer > 2 else ()
    modules = tuple(
        module for part in parts_of(rank.model, kind) for module in (norm, *part.modules(rank, kind), residual, *after)
    )
    return with_adapters(rank, kind, (*modulation_modules(rank, kind), *in_streams(rank, kind, modules)))


def in_streams(rank: RankShare, kind: LayerKind, modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """The modules of a layer whose streams have weights of their own: a product of all tokens is one of patches and one of their text."""
    patches = rank.model.patches
    if patches is None or rank.model.streams_of(kind) == 1:
        return modules
    text = rank.run.batch.micro * patches.text_tokens // rank.plan.cp
    apart = (rank.tokens - text, text)

    def products(call: Operator, many: float) -> Works:
        if not (isinstance(call, Gemm) and call.m == rank.tokens):
            return ((call, many),)
        return tuple((replace(call, m=own), many) for own in apart)

    return tuple(replace(each, works=tuple(chain.from_iterable(starmap(products, each.works)))) for each in modules)


def layer_blocks(rank: RankShare, kind: LayerKind) -> LayerBlocks:
    rank = rank.of_layer(kind)
    gathered, trained = gathered_in_layer(rank.run, kind), trained_in_layer(rank.run, kind)
    modules, launched, whole = layer_modules(rank, kind), launchings(rank, kind), whole_layer(rank, kind)
    return blocks_of(
        rank,
        modules,
        gathered,
        trained,
        launched=launched,
        in_backward=_beside_modules(rank, kind),
        waiting_bytes=waiting_on_host(rank, kind),
        whole=whole,
    )


def _beside_modules(rank: RankShare, kind: LayerKind) -> Calls:
    """Work of a layer's backward beside that of its modules."""
    return (*gradient_sums(rank, kind), *before_inputs_gradients(rank, kind))


def whole_layer(rank: RankShare, kind: LayerKind) -> DenseLayer | None:
    """A whole dense layer as wide as this rank's share of one; None for layers that it does not represent."""
    model, tp = rank.model, rank.plan.tp
    plain = kind == DENSE and model.attention.IS_PLAIN and rank.plan.cp == 1 and not model.qk_norm
    plain = plain and not model.bidirectional
    plain = plain and not rank.run.adapters.are_trained
    if not plain or rank.execution.attention == "unfused":
        return None
    heads, kv_heads = heads_on_rank(model, tp)
    shape = {"heads": heads, "kv_heads": kv_heads, "ffn": model.ffn // tp, "tp": 1, "sp": False, "group_nodes": 1}
    # a compiled layer stands for whichever way the framework fuses; plain torch is as it is
    fused = rank.execution.elementwise == "fused" and not rank.execution.whole_layers
    return DenseLayer(**{**layer_call(rank.run).fields(), "dtype": rank.dtype, **shape, "compiled": fused})


def blocks_of(
    rank: RankShare,
    modules: tuple[Module, ...],
    gathered: Weights,
    trained: Weights,
    *,
    launched: Mapping[Phase, Launching],
    in_backward: Calls = (),
    waiting_bytes: int = 0,
    whole: DenseLayer | None = None,
) -> LayerBlocks:
    """Blocks of modules whose weights have so many bytes, and so many elements that are trained, and with the launching of their phases.
    `in_backward` is what the gradients of activations take beside the modules' own, `waiting_bytes` what waits for the backward on the
    host; `whole` is the same layer as one call."""
    forward, backward = work_of(modules, "forward"), with_calls(work_of(modules, "backward"), in_backward)
    again = work_of(_recomputed_parts(rank, modules), "forward")

    def block(
        work: Work, sharded: Sharded | None = None, moved: Moved | None = None, *, phase: Phase, heading: str = ""
    ) -> Block:
        with_replicas = sharded(rank, gathered, trained, work.calls) if sharded else ()
        with_host = moved(rank, waiting_bytes, work.calls) if moved else ()
        return Block(
            calls=work.calls,
            overlapped=sharing(work.overlapped + with_replicas + with_host),
            launching=launched.get(phase),
            synchronous=rank.execution.synchronous_launches,
            heading=heading,
            whole=Counted(call=whole, phase=phase) if whole and phase in ("forward", "backward") else None,
        )

    def halves() -> tuple[Block, Block]:
        by_input = after(again, with_calls(work_of(modules, "backward_input"), in_backward))
        return (
            block(by_input, sharded_forward, back_from_host, phase="backward_input"),
            block(work_of(modules, "backward_weight"), sharded_gradients, phase="backward_weight"),
        )

    return LayerBlocks(
        forward=block(forward, sharded_forward, leaving_for_host, phase="forward"),
        again=block(forward, heading=RECOMPUTE, phase="forward"),
        backward=block(after(again, backward), sharded_backward, back_from_host, phase="backward"),
        halves=cache(halves),
        accumulation=accumulation_block(rank, trained),
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
    fused = rank.execution.adds_in_products and rank.plan.zero < 2
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
    modules = frozen(rank.run, embedding_modules(rank), needs_input=False)
    weights, launched = embedding_weights(rank.model, rank.plan), launchings_of_end(rank, "embedding")
    gathered, trained = weights * rank.item_bytes, trained_in_embedding(rank.run, weights)
    return blocks_of(rank, modules, gathered, trained, launched=launched)


def head_blocks(rank: RankShare, *, shares_embedding: bool) -> LayerBlocks:
    """The final norm, the logits, their loss; for every further token that is predicted, a layer and a head again."""
    run, kind = rank.run, rank.model.mtp_kind
    head = modules = frozen(run, head_modules(rank))
    beside = logits = logits_again(rank)
    for _ in range(rank.model.mtp_layers):
        modules += (*frozen(run, (joining_module(rank),)), *layer_modules(rank, kind), *head)
        beside += (*_beside_modules(rank, kind), *logits)
    trained = trained_in_head(run, head_weights(run.model, run.plan, shares_embedding=shares_embedding))
    gathered = gathered_in_head(run, shares_embedding=shares_embedding)
    launched = launchings_of_end(rank, "head")
    return blocks_of(rank, modules, gathered, trained, launched=launched, in_backward=beside)


CallT = TypeVar("CallT", bound=Call)


def as_sampled(call: CallT) -> CallT:
    """A framework's own kernel of attention, experts, router or permutation as the software's own choice; other calls unchanged."""
    if isinstance(call, Attention) and call.kernel in ATTENTION_KERNELS:
        return replace(call, kernel="")
    if isinstance(call, GroupedGemm) and call.kernel in (PER_EXPERT, IN_GRAPH):
        return replace(call, kernel="")
    if isinstance(call, Router):
        return replace(call, product="fp32")
    if isinstance(call, Permute | Unpermute):
        return replace(call, fused=False)
    return call
