"""Multi-head latent attention of DeepSeek (arXiv 2405.04434): queries, keys and values from projections of low rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.attention import CORE, Heads, core_calls, core_saved, projection, rotary, rotary_bytes
from predict.layers.norms import keeps_its_input, norm_bytes, normed_input
from predict.layers.part import MegatronArguments, Mixer
from predict.layers.saved_tensors import INDEX, Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare, served_products
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.exchanges import entering, exchange_of_keys, leaving
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.files.faults import Fault
from sampling.files.schema import Scalar
from sampling.operators.attention import Attention as AttentionCall
from sampling.operators.attention import DecodeAttention
from sampling.operators.gemm import BatchedGemm
from sampling.operators.indexer import Indexer
from sampling.operators.memory_bound import RMSNorm, RoPE, Stream

UPWARD = "mla_up_proj"
"""Megatron's name of the module of the ways up from what is compressed."""
WAYS_UP = "kv_up"
"""The product from compressed keys and values to those of every head, which servers do not run."""
INT32 = 4
"""Bytes of a place among keys, as kernels of sparse attention take it."""
STATED = re.compile(
    r"q(?:_lora)?\s*(?P<q_rank>\d+)\s*kv(?:_lora)?\s*(?P<kv_rank>\d+)\s*(?:qk_)?nope\s*(?P<nope_dim>\d+)\s*(?:qk_)?rope\s*"
    r"(?P<rope_dim>\d+)\s*v\s*(?P<value_dim>\d+)"
)
"""Ranks and widths in the words of a table: `q 1536 kv 512 nope 128 rope 64 v 128`."""
MEGATRON = MegatronArguments(
    switch="multi_latent_attention",
    sizes={
        "q_lora_rank": "q_rank",
        "kv_lora_rank": "kv_rank",
        "qk_head_dim": "nope_dim",
        "qk_pos_emb_head_dim": "rope_dim",
        "v_head_dim": "value_dim",
    },
    defaults={"q_lora_rank": 0, "kv_lora_rank": 32, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128},
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention(Mixer):
    """Tensor parallelism splits the up-projections by heads and leaves the down-projections whole."""

    NAME: ClassVar[str] = "latent"
    KINDS: ClassVar[tuple[str, ...]] = ("full", "sliding")
    IS_ATTENTION: ClassVar[bool] = True
    LEDGER: ClassVar[str] = "attention"
    GROUPED_ROUTER: ClassVar[bool] = True
    TITLE: ClassVar[str] = "latent attention"
    RECOMPUTABLE: ClassVar[tuple[str, ...]] = (UPWARD,)
    MEGATRON: ClassVar[MegatronArguments | None] = MEGATRON

    q_rank: int = 0
    """Width of the compressed queries; 0 where they are not compressed."""
    kv_rank: int
    """Width of the compressed keys and values."""
    nope_dim: int
    """Width of a head's queries and keys without position."""
    rope_dim: int
    """Width of a head's rotated queries, and of the one rotated key that all heads share."""
    value_dim: int
    """Width of a head's values."""
    index_heads: int = 0
    """Heads of the indexer that picks the keys which a query sees (DeepSeek-V3.2); 0 where it sees all."""
    index_dim: int = 0
    """Width of a head of the indexer."""
    index_topk: int = 0
    """Keys that a query sees."""

    @classmethod
    def of_text(cls, text: str) -> LatentAttention | None:
        found = STATED.search(text)
        return cls(**{size: int(number) for size, number in found.groupdict().items()}) if found else None

    @classmethod
    def derived(cls, fields: dict[str, Scalar], names: Mapping[str, str]) -> Iterator[Fault]:
        """The width of a head and of its rotated part; a key for each query head."""
        nope, rope, heads, kv_heads = (
            fields.get(name) for name in ("latent.nope_dim", "latent.rope_dim", "heads", "kv_heads")
        )
        if isinstance(nope, int) and isinstance(rope, int):
            fields["head_dim"], fields["rotary_dim"] = nope + rope, rope
        if isinstance(heads, int) and isinstance(kv_heads, int) and kv_heads != heads:
            problem = f"{kv_heads}, but latent attention has a key for each of the {heads} query heads; set {heads}"
            yield Fault(path=names["kv_heads"], problem=problem)
        if isinstance(rope, int) and rope % 2:
            problem = f"{rope} is odd, and rotary embedding turns pairs; make it even"
            yield Fault(path=names["latent.rope_dim"], problem=problem)

    @property
    def query_dim(self) -> int:
        """Width of a head's queries, and of its keys."""
        return self.nope_dim + self.rope_dim

    @property
    def compressed_width(self) -> int:
        return self.q_rank + self.kv_rank

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        hidden, heads, bias = model.hidden, model.heads, model.attention_bias
        q_down = Matrix(product="q_down", name="q_a_proj", outputs=self.q_rank, inputs=hidden, bias=bias)
        kv_width = self.nope_dim + self.value_dim
        return (
            *((q_down,) if self.q_rank else ()),
            Matrix(
                product="q_up",
                name="q_b_proj" if self.q_rank else "q_proj",
                outputs=heads * self.query_dim,
                inputs=self.q_rank or hidden,
                split="outputs",
                head=self.query_dim,
            ),
            Matrix(
                product="kv_down",
                name="kv_a_proj_with_mqa",
                outputs=self.kv_rank + self.rope_dim,
                inputs=hidden,
                bias=bias,
            ),
            Matrix(
                product="kv_up",
                name="kv_b_proj",
                outputs=heads * kv_width,
                inputs=self.kv_rank,
                split="outputs",
                head=kv_width,
            ),
            Matrix(
                product="proj", name="o_proj", outputs=hidden, inputs=heads * self.value_dim, split="inputs", bias=bias
            ),
            *self._index_matrices(model),
        )

    def _index_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Queries, the key and the weights of the heads of the indexer, whole on every rank of tp."""
        if not self.index_topk:
            return ()
        queries = self.index_heads * self.index_dim
        return (
            Matrix(product="index_q", outputs=queries, inputs=self.q_rank or model.hidden),
            Matrix(product="index_k", outputs=self.index_dim + self.index_heads, inputs=model.hidden),
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """The norms of the compressed queries, keys and values; scale and shift of the indexer's key."""
        return self.compressed_width + 2 * self.index_dim

    def reach(self, model: ModelSpec, kind: LayerKind) -> int:
        return self.index_topk or Mixer.reach(self, model, kind)

    def index_width(self, model: ModelSpec) -> int:
        return self.index_heads * (self.index_dim + 1)

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """Attention to the keys that the indexer picks, if there is one, and the indexer's own scores with all of them."""
        pairs = length * (length + 1) // 2
        attended = Mixer.core_flops(self, model, length, self.index_topk or window)
        return attended + 2 * pairs * self.index_width(model)

    def score_width(self, model: ModelSpec) -> int:
        return model.heads * (self.query_dim + self.value_dim)

    def value_dim_of(self, model: ModelSpec) -> int:
        return self.value_dim

    def rotary_width(self, model: ModelSpec) -> int:
        return self.rope_dim

    def repeated_share(self, model: ModelSpec, module: str) -> float:
        """The projections that lead up from what is compressed; queries that are not compressed have none."""
        upward = ("q_up", "kv_up") if self.q_rank else ("kv_up",)
        products = {matrix.product: matrix.elements for matrix in self.matrices(model)}
        return sum(products[product] for product in upward) / sum(products.values())

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        """The down-projections are whole on every rank of tp, and read the rows of its share of the sequence."""
        model, tp = rank.model, rank.plan.tp
        heads, head_dim = model.heads // tp, self.query_dim
        products = products_on_rank(self.matrices(model), tp)
        down: Works = ((rank.gemm(*products["kv_down"], m=rank.rows), 1),)
        up: Works = ((rank.norm(self.kv_rank), 1), (rank.gemm(*products["kv_up"]), 1))
        queries = rank.gemm(*products["q_up"])
        if self.q_rank:
            down += ((rank.gemm(*products["q_down"], m=rank.rows), 1),)
            up += ((rank.norm(self.q_rank), 1), (queries, 1))
        else:
            down += ((queries, 1),)
        # what is compressed on each rank's rows comes together before the ways up
        compressed = (self.q_rank or model.hidden) + self.kv_rank + self.rope_dim
        turned = tuple(work for own in (heads, 1) for work in rotary(rank, own, self.rope_dim))
        # keys are put together of their two parts for every head
        joined = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * heads * head_dim)
        return (
            Module(name="qkv_down", works=down),
            Module(name="mla_up_proj", works=up, exchanges=entering(rank, compressed)),
            Module(name="rope", works=(*turned, (joined, 1))),
            *self._indexing(rank),
            Module(
                name=CORE,
                works=core_calls(rank, heads, heads, head_dim, window=self.index_topk, value_dim=self.value_dim),
                exchanges=exchange_of_keys(rank, heads * head_dim, heads * (head_dim + self.value_dim)),
            ),
            Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        )

    def _indexing(self, rank: RankShare) -> tuple[Module, ...]:
        """The products and scores of the indexer, which every rank of tp has whole."""
        if not self.index_topk:
            return ()
        products = products_on_rank(self._index_matrices(rank.model), rank.plan.tp)
        scores = self._scores(rank.dtype, batch=rank.run.batch.micro, seq_len=rank.run.batch.seq_len)
        works: Works = (*((rank.gemm(*shape), 1) for shape in products.values()), (scores, 1 / rank.plan.cp))
        return (Module(name="indexer", works=works),)

    def _scores(self, dtype: str, *, batch: int, seq_len: int) -> Indexer:
        """Scores of each query with each key, and the choice of keys; all heads of the indexer, whatever tp."""
        return Indexer(
            dtype=dtype,
            batch=batch,
            seq_len=seq_len,
            heads=self.index_heads,
            head_dim=self.index_dim,
            topk=self.index_topk,
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """Bytes with flash attention: in Hugging Face's operators T[e·H + (4 + 2e)(r_q + r_kv) + 8 + 2e·A(dn + dr) + e·A(dn + dv) +
        2e·A·dv + 4A] (byte-equal, torch 2.13); in Transformer Engine T[e·H + 2e(r_q + r_kv) + e·dr + 8 + 2e·A(dn + dr) + 2e·A·dv +
        4A] (from the source of Megatron-Core's multi_latent_attention.py).

        The down-projections are whole on every rank of tp; sequence parallelism divides their tokens.
        """
        item, tokens = sizes.item, sizes.tokens
        heads = sizes.model.heads // sizes.tp
        ranks = [rank for rank in (self.q_rank, self.kv_rank) if rank]
        compressed: float = sum(norm_bytes(sizes, sizes.rows, rank) for rank in ranks)
        inputs = sum(sizes.input_item * sizes.input_rows * rank for rank in ranks)
        norm_inputs: float = sum(item * sizes.rows * rank for rank in ranks)
        queries = item * tokens * heads * self.query_dim
        values = item * tokens * heads * self.value_dim
        flash = sizes.rank.execution.attention != "unfused"
        keys_with_values = 0.0 if sizes.profile.fused_latent or not flash else item * tokens * heads * self.nope_dim
        if keeps_its_input(sizes):
            # the piece of the down-projection that the norm reads is in one storage with the rotated key
            rotated = item * sizes.rows * self.rope_dim
            norm_inputs, compressed = norm_inputs + rotated, compressed + rotated
        shape = Heads(
            heads=heads, kv_heads=heads, head_dim=self.query_dim, queries=queries, keys=queries, values=values
        )
        up_projection = {"mla_up_proj": 0.0}
        return (
            *normed_input(sizes, "qkv", is_module=True, input_of=("q_down" if self.q_rank else "q_up", "kv_down")),
            SavedTensors(
                component="qkv", kept=compressed, if_recomputed={"mla_up_proj": norm_inputs}, in_forward=norm_inputs
            ),
            SavedTensors(
                component="qkv",
                kept=inputs,
                if_recomputed=up_projection,
                in_forward=queries,
                input_of=("q_up", "kv_up") if self.q_rank else ("kv_up",),
            ),
            SavedTensors(component="rope", kept=rotary_bytes(sizes), in_forward=2 * queries),
            *self._saved_by_indexer(sizes),
            *core_saved(
                sizes,
                shape,
                storage=keys_with_values,
                if_recomputed=up_projection if sizes.profile.frees_recomputed_outputs else {},
            ),
            projection(sizes, values, copied=True),
        )

    def _saved_by_indexer(self, sizes: Sizes) -> Saved:
        """The places of the keys that each query sees, which the core's backward reads. Megatron-Core, which trains the indexer, keeps its
        queries, key and weights of heads whole on every rank of tp, the input of the key's norm, and the places as int64
        (experimental_attention_variant/dsa.py, `FusedDSAIndexerLoss`); transformers runs it without a gradient."""
        if not self.index_topk:
            return ()
        places = sizes.tokens * min(self.index_topk, sizes.rank.run.batch.seq_len)
        if not sizes.profile.megatron:
            return (SavedTensors(component="indexer", kept=INT32 * places),)
        trained = sizes.item * sizes.tokens * (self.index_width(sizes.model) + 2 * self.index_dim)
        return (SavedTensors(component="indexer", kept=float(INDEX * places + trained)),)

    # Servers keep the compressed keys and values alone, which every GPU of tp needs whole. Decoding takes the ways up into queries and
    # outputs ("absorbed"), so that all heads read the same compressed keys, whose leading part is the values (arXiv 2405.04434, section
    # 2.1.2).

    @property
    def key_width(self) -> int:
        """Elements of a compressed key."""
        return self.kv_rank + self.rope_dim

    def cache(self, share: ServerShare) -> LayerCache:
        return LayerCache(token_bytes=(self.key_width + self.index_dim) * share.kv_bytes, window=share.window)

    def decode_score_width(self, share: ServerShare) -> float:
        return float(share.model.heads // share.tp * (self.key_width + self.kv_rank))

    def keys_seen(self, share: ServerShare) -> int:
        return self.index_topk or share.window

    def index_bytes(self, share: ServerShare) -> float:
        return self.index_dim * share.kv_bytes

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        dtype, heads = share.activations, share.model.heads // share.tp
        matrices = (matrix for matrix in self.matrices(share.model) if matrix.product != WAYS_UP)
        yield from served_products(share, matrices, tokens)
        for inputs, outputs in ((self.nope_dim, self.kv_rank), (self.kv_rank, self.value_dim)):
            yield "gemm", BatchedGemm(dtype=dtype, batch=heads, m=tokens, n=outputs, k=inputs, adds=False), 1
        for width in filter(None, (self.q_rank, self.kv_rank)):
            yield "elementwise", RMSNorm(dtype=dtype, tokens=tokens, hidden=width), 1
        turned = RoPE(dtype=dtype, batch=1, seq_len=tokens, heads=heads + 1, head_dim=self.rope_dim)
        yield "elementwise", turned, 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        yield DecodeAttention(
            dtype=share.kv_dtype,
            batch=decodes,
            keys=keys,
            heads=share.model.heads // share.tp,
            kv_heads=1,
            head_dim=self.key_width,
            values_in_keys=self.kv_rank,
            window=self.keys_seen(share),
        )
        if self.index_topk:
            # the indexer's scores with all keys, summed over its heads: as the products of a decode whose values are one element wide
            yield DecodeAttention(
                dtype=share.kv_dtype,
                batch=decodes,
                keys=keys,
                heads=self.index_heads,
                kv_heads=1,
                head_dim=self.index_dim,
                values_in_keys=1,
            )

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        heads = share.model.heads // share.tp
        yield AttentionCall(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            heads=heads,
            kv_heads=heads,
            head_dim=self.query_dim,
            value_dim=self.value_dim,
            causal=True,
            window=self.index_topk if self.index_topk < tokens else share.window,
        )
        if self.index_topk:
            yield self._scores(share.activations, batch=1, seq_len=tokens)
