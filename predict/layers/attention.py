"""Attention with grouped queries: over all earlier tokens, or over those in a window."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from predict.layers.norms import keeps_its_input, norm_bytes, normed_input
from predict.layers.part import Mixer
from predict.layers.saved_tensors import FP32, INDEX, Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare
from predict.model.spec import LayerKind, ModelSpec, chunks_of
from predict.rank.exchanges import entering, exchange_of_keys, leaving
from predict.rank.module import Module, Works
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.call import Call
from sampling.cells.matrices import Matrix, attention_matrices, products_on_rank
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.attention import UNPACKED, DecodeAttention
from sampling.operators.attention import Attention as AttentionCall
from sampling.operators.gemm import BatchedGemm
from sampling.operators.memory_bound import CausalSoftmax, Dropout, MaskFill, RMSNorm, RoPE, Softmax, Stream

CORE = "core_attn"
UNFUSED_PASSES = 5
"""Tensors that a rotary embedding of torch's operators moves beyond a fused one: 10 forward and 15 backward, of the 7 and 8 that the fused
one's share of the bandwidth stands for (Megatron-LM, rope_utils.py, `_apply_rotary_pos_emb_bshd`); their mean."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention(Mixer):
    """Its sizes are fields of the model itself."""

    NAME: ClassVar[str] = "attention"
    KINDS: ClassVar[tuple[str, ...]] = ("full", "sliding", "chunked")
    IS_ATTENTION: ClassVar[bool] = True
    LEDGER: ClassVar[str] = "attention"
    IS_PLAIN: ClassVar[bool] = True

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return attention_matrices(
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            query_gate=model.query_gate,
            qkv_bias=model.attention_bias,
            key_bias=model.key_bias,
            output_bias=model.output_bias,
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """The norms of queries and keys, and the sinks."""
        normed = model.q_width + model.kv_width if model.qk_norm_all_heads else 2 * model.head_dim
        return normed * model.qk_norm + model.heads * model.sinks

    def score_width(self, model: ModelSpec) -> int:
        return model.heads * 2 * model.head_dim

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        model, tp = rank.model, rank.plan.tp
        heads, kv_heads = heads_on_rank(model, tp)
        products = products_on_rank(self.matrices(model), tp)
        turned: list[tuple[Operator, float]] = []
        for own in (heads, kv_heads):
            if model.qk_norm:
                rows, width = normed_heads(model, rank.tokens, own)
                turned.append((RMSNorm(dtype=rank.dtype, tokens=rows, hidden=width), 1))
            if model.rope:
                turned += rotary(rank, own, model.rotary_dim or model.head_dim)
        window = model.window if kind.mixer == "sliding" else 0
        return (
            Module(name="qkv", works=rank.products(self.matrices(model), "qkv"), exchanges=entering(rank)),
            Module(name="rope", works=tuple(turned)),
            Module(
                name=CORE,
                works=core_calls(
                    rank,
                    heads,
                    kv_heads,
                    model.head_dim,
                    window=window,
                    chunk=model.window if kind.mixer == "chunked" else 0,
                )
                + _biasing(rank, heads),
                exchanges=exchange_of_keys(rank, heads * model.head_dim, 2 * kv_heads * model.head_dim),
            ),
            Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """T[e·H + e(2A·d + 2G·d) + 4A] bytes with flash attention (Dao, arXiv 2307.08691: queries, keys, values, output and the
        log-sum-exp), byte-equal to torch's for grouped queries without a repeat; heads per rank."""
        model, item, tokens = sizes.model, sizes.item, sizes.tokens
        heads, kv_heads = heads_on_rank(model, sizes.tp)
        queries, keys = item * tokens * heads * model.head_dim, item * tokens * kv_heads * model.head_dim
        shape = Heads(heads=heads, kv_heads=kv_heads, head_dim=model.head_dim, queries=queries, keys=keys, values=keys)
        # the product of the gate and attention's output, and the gate's sigmoid unless the backward computes it again
        gate = queries * (1 if sizes.profile.compiled else 2) if model.query_gate else 0.0
        # a stream projects a copy of its part of the output
        copied = 0 < model.rotary_dim < model.head_dim or model.queries_by_head or model.streams > 1
        return (
            *normed_input(sizes, "qkv", is_module=False, input_of=("qkv",)),
            SavedTensors(
                component="qkv",
                kept=_normed_heads(sizes, heads, kv_heads)
                + (queries + keys if sizes.profile.keeps_joint_qkv or model.joint_qkv else 0.0),
                in_forward=queries + keys,
            ),
            SavedTensors(component="positions", kept=looked_up_rotary_bytes(sizes)),
            SavedTensors(component="rope", kept=rotary_bytes(sizes), in_forward=queries + keys),
            *core_saved(sizes, shape, storage=_biases_bytes(sizes, heads)),
            projection(sizes, queries, gate=gate, copied=copied),
        )

    def cache(self, share: ServerShare) -> LayerCache:
        """The cache of the heads of keys and values on one GPU; with fewer heads than GPUs, each GPU has a copy of one."""
        _, kv_heads = heads_on_rank(share.model, share.tp)
        return LayerCache(token_bytes=2 * kv_heads * share.model.head_dim * share.kv_bytes, window=share.window)

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        yield from Mixer.token_calls(self, share, tokens)
        heads = sum(heads_on_rank(share.model, share.tp))
        turned = RoPE(dtype=share.activations, batch=1, seq_len=tokens, heads=heads, head_dim=share.model.head_dim)
        yield "elementwise", turned, 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        heads, kv_heads = heads_on_rank(share.model, share.tp)
        kernel: dict[str, Any] = {"kernel": "" if share.shares_keys else UNPACKED}
        yield DecodeAttention(
            dtype=share.kv_dtype,
            batch=decodes,
            keys=keys,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=share.model.head_dim,
            window=share.most_seen,
            **({"block": share.cache_block} if share.cache_block else kernel),
        )

    def reads_of_key(self, share: ServerShare) -> float:
        heads, kv_heads = heads_on_rank(share.model, share.tp)
        return 1.0 if share.shares_keys else heads / kv_heads

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        heads, kv_heads = heads_on_rank(share.model, share.tp)
        whole = AttentionCall(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=share.model.head_dim,
            causal=True,
            window=share.window,
        )
        yield from attention_in_chunks(whole, share.chunk or tokens)


BIASING_PASSES = 2
"""Passes over the scores in which a number for each head and distance joins them: fused, they are read in forward, and in backward read,
written as gradients and added up; by torch's operators they are read and written in forward, and added up in backward; their mean."""


def _biasing(rank: RankShare, heads: int) -> Works:
    """The adding of relative positions to all scores."""
    if not rank.model.relative_buckets:
        return ()
    batch = rank.run.batch
    scores = batch.micro * heads * batch.seq_len**2 // rank.plan.cp
    return ((Stream(dtype=rank.dtype, size_bytes=BIASING_PASSES * rank.item_bytes * scores), 1),)


def _biases_bytes(sizes: Sizes, heads: int) -> float:
    """Relative positions as a fused kernel keeps them: for each head one number for each pair of tokens, in an order of its own
    (transformers, integrations/sdpa_attention.py, `create_position_bias_mask`)."""
    rank = sizes.rank
    if not sizes.model.relative_buckets or rank.execution.attention == "unfused":
        return 0.0
    return float(sizes.item * heads * rank.run.batch.seq_len**2 // rank.plan.cp)


def normed_heads(model: ModelSpec, tokens: int, heads: int) -> tuple[int, int]:
    """Rows and width of the norm of the queries, or keys, of these heads."""
    if model.qk_norm_all_heads:
        return tokens, heads * model.head_dim
    return tokens * heads, model.head_dim


def heads_on_rank(model: ModelSpec, tp: int) -> tuple[int, int]:
    """Query heads, and key and value heads: each rank has one of those at least."""
    return model.heads // tp, max(1, model.kv_heads // tp)


def rotary(rank: RankShare, heads: int, width: int) -> Works:
    """The rotary embedding; torch's own operators where it scales what it turns."""
    batch, dtype = rank.run.batch, rank.dtype
    turned = RoPE(dtype=dtype, batch=batch.micro, seq_len=batch.seq_len // rank.plan.cp, heads=heads, head_dim=width)
    if not rank.model.scaled_rope or rank.execution.elementwise == "eager":
        return ((turned, 1),)
    return (turned, 1), (Stream(dtype=dtype, size_bytes=UNFUSED_PASSES * rank.item_bytes * turned.elements), 1)


def core_calls(
    rank: RankShare,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    window: int = 0,
    chunk: int = 0,
    value_dim: int = 0,
) -> Works:
    """Attention itself; a rank of cp does an even share of it, in a ring as one piece for each of its ranks (`_in_ring`). Of chunks, if
    there are any, each is a sequence of its own.

    Within a window it is an even share in a ring too: most pieces hold no key that a query sees, and no ring of the frameworks runs a
    window in pieces (Transformer Engine refuses windows with `p2p`: context_parallel.py, attn_forward_func_with_cp).
    """
    batch, execution = rank.run.batch, rank.execution
    if execution.attention == "unfused":
        return _unfused(rank, heads, head_dim, value_dim or head_dim)
    attention = AttentionCall(
        dtype=FP8 if execution.fp8_attention else rank.dtype,
        batch=batch.micro,
        seq_len=batch.seq_len,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        causal=not rank.model.bidirectional,
        window=_window(window, batch.seq_len),
        value_dim=value_dim,
        kernel=execution.attention_kernel_on(
            rank.run.cluster.gpu.architecture, adds_positions=bool(rank.model.relative_buckets)
        ),
    )
    calls = attended(rank.run, attention, window=window)
    if chunk:
        calls = tuple((part, share) for call, share in calls for part in attention_in_chunks(call, chunk))
    own = heads * head_dim + kv_heads * (head_dim + attention.value_head_dim)
    narrowed = _to_fp8(rank, own) if execution.fp8_attention else ()
    if rank.plan.cp > 1 and rank.plan.cp_method == "ring" and not window:
        return (*narrowed, *_in_ring(rank, calls))
    return (*narrowed, *((call, share / rank.plan.cp) for call, share in calls))


FP8 = "fp8"
READS_TO_FP8 = 2
"""Reads of a tensor that is brought to fp8: for its largest element, and to be written anew (Transformer Engine, current scaling)."""


def _to_fp8(rank: RankShare, width: int) -> Works:
    """Queries, keys and values on their way to fp8, `width` wide together on this rank; in the backward, gradients as wide."""
    moved = (READS_TO_FP8 * rank.item_bytes + DTYPE_BYTES[FP8]) * rank.tokens * width
    return ((Stream(dtype=rank.dtype, size_bytes=moved), 1),)


def attention_in_chunks(whole: AttentionCall, chunk: int) -> tuple[AttentionCall, ...]:
    """Attention of sequences whose tokens see their own chunk alone."""
    return tuple(
        replace(whole, batch=many * whole.batch, seq_len=tokens)
        for many, tokens in chunks_of(whole.seq_len, chunk)
        if many and tokens
    )


RESCALED_PASSES = 3
"""Passes over the output in which a further piece of a ring joins it: both are read, and one is written."""


def _in_ring(rank: RankShare, calls: tuple[tuple[AttentionCall, float], ...]) -> Works:
    """The pieces of a ring: a rank's queries over its own keys, and then over as many pairs with the keys of each other rank, since each
    rank holds an early and a late chunk. Each is a kernel of its own; what they leave is rescaled to one output (Transformer Engine,
    attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P)."""
    cp = rank.plan.cp
    pieces = tuple(_piece(call, share, cp) for call, share in calls)
    first = calls[0][0]
    output = rank.item_bytes * rank.tokens * first.heads * first.value_head_dim
    joining = Stream(dtype=rank.dtype, size_bytes=RESCALED_PASSES * output)
    return (*pieces, (joining, cp - 1))


def _piece(whole: AttentionCall, share: float, cp: int) -> tuple[AttentionCall, float]:
    """A piece, which has the squares of a share of the whole sequence, and how often a rank runs one."""
    tokens = max(1, whole.seq_len // cp)
    return replace(whole, seq_len=tokens), cp * share * (whole.seq_len / (cp * tokens)) ** 2


def attended(run: TrainingRun, whole: AttentionCall, *, window: int = 0) -> tuple[tuple[AttentionCall, float], ...]:
    """Attention of a microbatch's real sequences in place of its rows, each call by the share in which it counts."""
    return tuple(
        (replace(whole, batch=count, seq_len=length, window=_window(window, length)), share)
        for count, length, share in _sequences_seen(run)
    )


def _sequences_seen(run: TrainingRun) -> tuple[tuple[int, int, float], ...]:
    """Number and length of the sequences that attention of a microbatch sees: for each group of like lengths as many as have the
    microbatch's tokens, and the share of them that has the group's squares."""
    micro, row_tokens = run.batch.micro, run.batch.seq_len
    found = []
    for like in run.attended:
        count = max(1, round(micro * row_tokens / like.length))
        found.append((count, like.length, micro * like.squares / (count * like.length**2)))
    return tuple(found) or ((micro, row_tokens, 1.0),)


def _window(window: int, seq_len: int) -> int:
    """The window where it bounds what a query sees; 0 where it does not."""
    return window if window < seq_len else 0


def _unfused(rank: RankShare, heads: int, head_dim: int, value_dim: int) -> Works:
    """Two products with softmax, and dropout, between them (Megatron-LM's core attention)."""
    return tuple(
        (call, share / rank.plan.cp)
        for count, length, share in _sequences_seen(rank.run)
        for call in unfused_calls(rank, count * heads, length, head_dim, value_dim, between=_between(rank))
    )


Between = type[CausalSoftmax | MaskFill | Softmax]


def unfused_calls(
    rank: RankShare, matrices: int, seq_len: int, head_dim: int, value_dim: int, *, between: tuple[Between, ...]
) -> tuple[Operator, ...]:
    """Attention as two products of each of so many matrices of scores, with the kernels between them."""
    dtype, execution = rank.dtype, rank.execution
    scores = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=seq_len, k=head_dim, adds=True)
    values = BatchedGemm(dtype=dtype, batch=matrices, m=seq_len, n=value_dim, k=seq_len, adds=False)
    softmax = tuple(kind(dtype=dtype, matrices=matrices, seq_len=seq_len) for kind in between)
    dropped = (Dropout(dtype=dtype, count=matrices * seq_len**2),) if execution.dropout else ()
    return (scores, *softmax, *dropped, values)


def _between(rank: RankShare) -> tuple[Between, ...]:
    """The kernels between the two products."""
    if rank.model.bidirectional:
        return (Softmax,)
    return (CausalSoftmax,) if rank.execution.fuse_softmax else (MaskFill, Softmax)


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """Heads of a rank, and bytes of all their queries, keys and values."""

    heads: int
    kv_heads: int
    head_dim: int
    queries: float
    keys: float
    values: float


def rotary_bytes(sizes: Sizes) -> float:
    """Cosines and sines, 2·S·d·e bytes: one storage for all layers of a forward. A tower has those of each image in fp32. Relative
    positions have the row of each pair of tokens."""
    rank = sizes.rank
    if sizes.model.relative_buckets:
        return float(INDEX * rank.run.batch.seq_len**2 // rank.plan.cp)
    if not sizes.model.rope or sizes.profile.static_rotary:
        return 0.0
    if sizes.model.patches:
        return 2.0 * FP32 * sizes.tokens * _rotary_width(sizes)
    return 2.0 * sizes.item * (rank.run.batch.seq_len // rank.plan.cp) * _rotary_width(sizes)


def looked_up_rotary_bytes(sizes: Sizes) -> float:
    """Cosines and sines of each token's position, for queries and for keys, 4·T·d·e bytes per layer."""
    if not sizes.model.rope or not sizes.profile.gathers_rotary:
        return 0.0
    return 4.0 * sizes.item * sizes.tokens * _rotary_width(sizes)


def _rotary_width(sizes: Sizes) -> int:
    return sizes.model.attention.rotary_width(sizes.model)


def core_saved(
    sizes: Sizes,
    heads: Heads,
    *,
    storage: float = 0.0,
    if_recomputed: Mapping[str, float] | None = None,
    keys_seen: int = 0,
) -> Saved:
    """Queries, keys and values, and the statistics or scores of their softmax; the output is the projection's input.

    `storage`: bytes that are kept with the values. `if_recomputed`: what else drops queries, keys and values. `keys_seen`: keys of
    another sequence than the queries'.
    """
    in_fp8 = DTYPE_BYTES[FP8] / sizes.item if sizes.rank.execution.fp8_attention else 1.0
    arguments = SavedTensors(
        component=CORE,
        kept=in_fp8 * (heads.queries + heads.keys + heads.values) + storage,
        if_recomputed=if_recomputed or {},
    )
    if sizes.rank.execution.attention == "unfused":
        return (arguments, _scores(sizes, heads, keys_seen or sizes.rank.run.batch.seq_len))
    # FlashAttention-2 accumulates the gradient of the queries in fp32 and, of grouped queries, a key's and value's for every head
    accumulated = FP32 * sizes.tokens * heads.heads * heads.head_dim
    repeated = (heads.heads // heads.kv_heads - 1) * (heads.keys + heads.values)
    statistics = SavedTensors(
        component=CORE,
        kept=FP32 * sizes.tokens * heads.heads,
        if_recomputed={CORE: 0.0},
        in_backward=heads.queries + heads.keys + heads.values + accumulated + repeated,
    )
    return (arguments, statistics)


def _scores(sizes: Sizes, heads: Heads, keys_seen: int) -> SavedTensors:
    """Two products with softmax between: e bytes per score for it, with dropout a mask and its result, 2e + 1 in all
    (Korthikanti et al., arXiv 2205.05198, eq. 1: 5·a·s²·b); Hugging Face's rotary models keep an fp32 softmax and its cast.

    Keys and values of grouped queries are repeated for every head. The result of a tanh that bounds the scores is kept too.
    """
    rank, item, model = sizes.rank, sizes.item, sizes.model
    batch, repeat = rank.run.batch, heads.heads // heads.kv_heads
    scores = float(batch.micro * heads.heads * batch.seq_len * keys_seen) / rank.plan.cp
    upcast = not sizes.fused_softmax and model.rope
    softmax = FP32 if upcast else item
    dropped = item + 1 if rank.execution.dropout else (item if upcast and item != FP32 else 0)
    cap = item if model.attention_cap else 0
    masked = not (sizes.fused_softmax or model.rope or model.bidirectional or model.relative_buckets)
    mask = float(batch.seq_len * keys_seen) if masked else 0.0
    return SavedTensors(
        component=CORE,
        kept=(repeat - 1) * (heads.keys + heads.values) + scores * (softmax + dropped + cap) + mask,
        if_recomputed={CORE: 0.0},
        in_forward=item * scores,
        in_backward=(2 * FP32 - item if upcast else item) * scores + heads.values * repeat,
    )


def projection(sizes: Sizes, output: float, *, gate: float = 0.0, copied: bool) -> SavedTensors:
    """Attention's output, `output` bytes, which is the projection's input; twice where it is `copied`, and an fp8 copy for fp8
    products.

    torch's attention gives its output the layout of the queries, which is heads before tokens where they were concatenated of a rotated
    and a plain part; the projection reads, and keeps, a copy then (counted on CPU, torch 2.13).
    """
    # compiled, a gate reads the output in place and only the product of both is kept
    in_place = sizes.profile.megatron or (sizes.profile.compiled and sizes.model.query_gate)
    copied = copied and sizes.rank.execution.attention != "unfused" and not in_place
    kept, read = output * (2 if copied else 1) + gate, output / sizes.item * sizes.input_item
    if sizes.narrow_inputs:
        kept += read
    return SavedTensors(component="proj", kept=kept, in_backward=output, read_too=read)


def _normed_heads(sizes: Sizes, heads: int, kv_heads: int) -> float:
    """The norms of queries and keys. One that keeps its input keeps the gate with the queries, as one storage."""
    model, tokens = sizes.model, sizes.tokens
    if not model.qk_norm:
        return 0.0
    kept = sum(norm_bytes(sizes, *normed_heads(model, tokens, count), norm="rms") for count in (heads, kv_heads))
    with_gate = model.query_gate and keeps_its_input(sizes) and not sizes.profile.megatron
    return kept + (sizes.item * tokens * heads * model.head_dim if with_gate else 0.0)
