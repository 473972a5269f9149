"""Attention to a sequence beside the model's own: queries of each token, keys and values of the other sequence's. In Wan and PixArt that is
a text, in Llama 3.2 Vision images, in an encoder–decoder what the encoder makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from predict.layers.attention import CORE, Heads, core_saved, heads_on_rank, normed_heads, projection, unfused_calls
from predict.layers.norms import norm_bytes, normed_input
from predict.layers.part import Mixer
from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.model.spec import CROSS, LayerKind, ModelSpec
from predict.rank.exchanges import entering, leaving
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from sampling.cells.matrices import Matrix, attention_matrices, products_on_rank
from sampling.operators.attention import Attention as AttentionCall
from sampling.operators.memory_bound import RMSNorm, Softmax

QUERY, KEYS = "cross_q", "cross_kv"


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossAttention(Mixer):
    """Heads and biases are those of the model's own attention."""

    tokens: int
    """Tokens of the sequence beside; 0 until the run says how many."""
    normed: bool = True
    """The norm before it has weights, although others of the stream have none."""
    qk_norm: bool = False
    """Queries and keys are normed, although those of the model's own attention may not be."""

    NAME: ClassVar[str] = "cross"
    KINDS: ClassVar[tuple[str, ...]] = (CROSS,)
    TITLE: ClassVar[str] = "attention to another sequence"
    LEDGER: ClassVar[str] = "cross_attention"

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        query, key, value, output = attention_matrices(
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            qkv_bias=model.attention_bias,
            key_bias=model.key_bias,
            output_bias=model.output_bias,
        )
        return replace(query, product=QUERY), replace(key, product=KEYS), replace(value, product=KEYS), output

    def elements_per_token(self, model: ModelSpec) -> int:
        """Queries and output: keys and values are those of the sequence beside."""
        return sum(each.elements for each in self.matrices(model) if each.product != KEYS)

    def elements_beside(self, model: ModelSpec) -> int:
        return sum(each.elements for each in self.matrices(model) if each.product == KEYS)

    def tokens_beside(self, product: str) -> int:
        return self.tokens if product == KEYS else 0

    def attending_to(self, tokens: int) -> CrossAttention:
        return replace(self, tokens=tokens)

    @property
    def lacks_tokens(self) -> bool:
        return not self.tokens

    def other_parameters(self, model: ModelSpec) -> int:
        """The norms of queries and keys, and the weights of its norm of the stream."""
        normed = model.q_width + model.kv_width if model.qk_norm_all_heads else 2 * model.head_dim
        return normed * self._norms_heads(model) + 2 * model.hidden * self.normed

    def _norms_heads(self, model: ModelSpec) -> bool:
        return self.qk_norm or model.qk_norm

    def score_width(self, model: ModelSpec) -> int:
        return model.heads * 2 * model.head_dim

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """Each token with each of the sequence beside, and that one's keys and values."""
        return 2 * self.tokens * (length * self.score_width(model) + self.elements_beside(model))

    def reach(self, model: ModelSpec, kind: LayerKind) -> int:
        return self.tokens

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        model, tp = rank.model, rank.plan.tp
        products = products_on_rank(self.matrices(model), tp)
        heads, kv_heads = heads_on_rank(model, tp)
        beside = rank.run.batch.micro * self.tokens
        normed: Works = ()
        if self._norms_heads(model):
            for tokens, own in ((rank.tokens, heads), (beside, kv_heads)):
                rows, width = normed_heads(model, tokens, own)
                normed += ((RMSNorm(dtype=rank.dtype, tokens=rows, hidden=width), 1),)
        return (
            Module(name="qkv", works=((rank.gemm(*products[QUERY]), 1),), exchanges=entering(rank)),
            Module(
                name="qkv",
                works=((rank.gemm(*products[KEYS], m=beside), 1),),
                exchanges=() if rank.run.attends_to_frozen else entering(rank, beside=beside),
                backward="weights" if rank.run.attends_to_frozen else "whole",
            ),
            *((Module(name="qkv", works=normed),) if normed else ()),
            Module(name=CORE, works=self._core(rank, heads, kv_heads)),
            Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        )

    def _core(self, rank: RankShare, heads: int, kv_heads: int) -> Works:
        """The calls of square blocks that do the same products, and how often: as many queries as keys, each block a sequence of its
        own."""
        blocks = max(1, round(rank.tokens / self.tokens))
        share, width = rank.tokens / (blocks * self.tokens), rank.model.head_dim
        if rank.execution.attention == "unfused":
            own = unfused_calls(rank, blocks * heads, self.tokens, width, width, between=(Softmax,))
            return tuple((each, share) for each in own)
        call = AttentionCall(
            dtype=rank.dtype,
            batch=blocks,
            seq_len=self.tokens,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=width,
            causal=False,
            kernel=rank.execution.attention_kernel_on(rank.run.cluster.gpu.architecture),
        )
        return ((call, share),)

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """The norm and its output, queries, keys and values, the statistics of the softmax, and the output; the sequence beside is itself
        kept once for all layers."""
        model, beside = sizes.model, sizes.rank.run.batch.micro * self.tokens
        heads, kv_heads = heads_on_rank(model, sizes.tp)
        queries = float(sizes.item * sizes.tokens * heads * model.head_dim)
        keys = float(sizes.item * beside * kv_heads * model.head_dim)
        shape = Heads(heads=heads, kv_heads=kv_heads, head_dim=model.head_dim, queries=queries, keys=keys, values=keys)
        normed = 0.0
        if self._norms_heads(model):
            normed = norm_bytes(sizes, *normed_heads(model, sizes.tokens, heads), norm="rms")
            normed += norm_bytes(sizes, *normed_heads(model, beside, kv_heads), norm="rms")
        return (
            *normed_input(sizes, "qkv", is_module=False, input_of=(QUERY,)),
            SavedTensors(component="qkv", kept=normed, in_forward=queries),
            *core_saved(sizes, shape, keys_seen=self.tokens),
            projection(sizes, queries, copied=model.queries_by_head),
        )
