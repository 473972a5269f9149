"""Mamba-2 (Dao and Gu, arXiv 2405.21060): a short causal convolution, then a state-space recurrence with one state per head."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.attention import CORE
from predict.layers.norms import normed_input
from predict.layers.part import CONVOLUTION, Mixer
from predict.layers.saved_tensors import FP32, Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare, served_products
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.exchanges import entering, exchange_of_keys, leaving
from predict.rank.module import Module
from predict.rank.share import RankShare
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.memory_bound import RMSNorm, Stream, SwiGLU
from sampling.operators.state_space import CausalConv, StateSpaceScan

STATE = "fp32"
"""Dtype of a server's states (`mamba_ssm_cache_dtype` of Nemotron-H's config.json)."""
SCAN_FLOPS = 7.0
"""FLOPs of a forward per token and element of the states: decay, input, sum, output and D (Megatron-LM, training.py,
`mamba_layer_flops`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mamba(Mixer):
    """Heads of a group share what goes into the state (B) and what comes out of it (C), as queries share keys."""

    NAME: ClassVar[str] = "mamba"
    KINDS: ClassVar[tuple[str, ...]] = ("mamba",)
    TITLE: ClassVar[str] = "Mamba-2"
    IS_RECURRENT: ClassVar[bool] = True
    LEDGER: ClassVar[str] = "mamba"

    heads: int
    head_dim: int
    """Width of a head."""
    groups: int
    """Groups of heads with the same B and C; each is normed by itself at the end."""
    state: int
    """Width of a head's state, [head_dim, state]."""
    conv: int
    """Tokens that the convolution spans."""
    conv_bias: bool = True
    chunk: int = 256
    """Tokens of a chunk of the recurrence."""

    @property
    def width(self) -> int:
        """Channels of all heads."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: the heads', B and C."""
        return self.width + 2 * self.groups * self.state

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Gate, input, B, C and step of each head are one product. Each weight of the convolution multiplies once per token too."""
        into = ((self.width, 1), (self.width, 1), *[(self.groups * self.state, self.state)] * 2, (self.heads, 1))
        return (
            *(
                Matrix(product="qkv", outputs=width, inputs=model.hidden, split="outputs", head=head)
                for width, head in into
            ),
            Matrix(
                product=CONVOLUTION,
                outputs=self.conv_width,
                inputs=self.conv,
                split="outputs",
                bias=self.conv_bias,
                is_linear=False,
            ),
            Matrix(product="proj", outputs=model.hidden, inputs=self.width, split="inputs"),
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """Decay, step bias and skip of each head, and the scale of the norm of the outputs."""
        return 3 * self.heads + self.width

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Megatron-LM's count of the states, and twice that backward."""
        return 3 * SCAN_FLOPS * self.width * self.state

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """Chunks of Q tokens (Dao and Gu, section 6): per token 2Q·N for each group, and for each head 2Q·P within the chunk and
        4·N·P with the states."""
        padded = -(-length // self.chunk) * self.chunk
        return padded * (2 * self.chunk * (self.groups * self.state + self.width) + 4 * self.width * self.state)

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        tp, tokens, batch = rank.plan.tp, rank.tokens, rank.run.batch
        heads, groups = self.heads // tp, self.groups_on_rank(tp)
        width = heads * self.head_dim
        channels = self.channels_on_rank(tp)
        products = products_on_rank(self.matrices(rank.model), tp)
        seq_len = batch.seq_len // rank.plan.cp
        convolved = CausalConv(dtype=rank.dtype, batch=batch.micro, seq_len=seq_len, channels=channels, width=self.conv)
        scan = StateSpaceScan(
            dtype=rank.dtype,
            batch=batch.micro,
            seq_len=batch.seq_len,
            heads=heads,
            head_dim=self.head_dim,
            groups=groups,
            state_dim=self.state,
            chunk=self.chunk,
        )
        gated = SwiGLU(dtype=rank.dtype, tokens=tokens, width=width)
        normed = RMSNorm(dtype=rank.dtype, tokens=tokens * groups, hidden=width // groups)
        return (
            Module(
                name="qkv",
                works=((rank.gemm(*products["qkv"]), 1), (convolved, 1)),
                exchanges=entering(rank),
            ),
            Module(name=CORE, works=((scan, 1 / rank.plan.cp),), exchanges=exchange_of_keys(rank, width, channels)),
            Module(
                name="proj",
                works=((gated, 1), (normed, 1), (rank.gemm(*products["proj"]), 1)),
                exchanges=leaving(rank),
            ),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        recurrence = _flash if sizes.profile.flash_linear else _in_torch
        return (*normed_input(sizes, "qkv", is_module=False, input_of=("qkv",)), *recurrence(sizes, self))

    def cache(self, share: ServerShare) -> LayerCache:
        """A state per head in fp32 and the convolution's last tokens, whatever the sequence's length."""
        states = self._heads(share) * self.head_dim * self.state * DTYPE_BYTES[STATE]
        last_tokens = self.channels_on_rank(share.tp) * (self.conv - 1) * DTYPE_BYTES[share.activations]
        return LayerCache(sequence_bytes=states + last_tokens)

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        matrices = (matrix for matrix in self.matrices(share.model) if matrix.product != CONVOLUTION)
        yield from served_products(share, matrices, tokens)
        convolved = 2 * DTYPE_BYTES[share.activations] * tokens * self.channels_on_rank(share.tp)
        yield "elementwise", Stream(dtype=share.activations, size_bytes=convolved), 1
        width, groups = self._heads(share) * self.head_dim, self.groups_on_rank(share.tp)
        yield "elementwise", SwiGLU(dtype=share.activations, tokens=tokens, width=width), 1
        yield "elementwise", RMSNorm(dtype=share.activations, tokens=tokens * groups, hidden=width // groups), 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        """A decode reads and writes the whole state of its sequence."""
        yield Stream(dtype=STATE, size_bytes=round(2 * decodes * self.cache(share).sequence_bytes))

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        yield StateSpaceScan(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            heads=self._heads(share),
            head_dim=self.head_dim,
            groups=self.groups_on_rank(share.tp),
            state_dim=self.state,
            chunk=self.chunk,
        )

    def groups_on_rank(self, tp: int) -> int:
        """Groups of heads on one GPU, whose B and C each GPU has whole."""
        return max(1, self.groups // tp)

    def channels_on_rank(self, tp: int) -> int:
        """Channels of the convolution on one GPU: x of its heads, B and C of its groups."""
        return max(1, self.heads // tp) * self.head_dim + 2 * self.groups_on_rank(tp) * self.state

    def _heads(self, share: ServerShare) -> int:
        """Heads with a state on one GPU."""
        return max(1, self.heads // share.tp)


def _in_torch(sizes: Sizes, mamba: Mamba) -> Saved:
    """transformers' torch fallback, byte-equal in 16 bits where the chunk Q divides S: with T tokens, h heads of width P and state N
    in G groups, d = h·P, and c chunks of a sequence, T[e(proj + 2h) + 16h + 40d + 20hN + 12hQ + 4G] + e·B·channels(S + conv − 1) +
    4B·h[P·N(2c + 1) + (c + 1)²] + 8h + 2Q² + 2(c + 1)² + e·T·d bytes."""
    batch, tp, item = sizes.rank.run.batch.micro, sizes.tp, sizes.item
    tokens, heads, groups = sizes.tokens, mamba.heads // tp, mamba.groups_on_rank(tp)
    width, state, chunk = heads * mamba.head_dim, mamba.state, mamba.chunk
    chunks = -(-tokens // (batch * chunk))
    projected = products_on_rank(mamba.matrices(sizes.model), tp)["qkv"][0]
    convolved = item * mamba.channels_on_rank(tp) * (tokens + batch * (mamba.conv - 1))
    of_token = 2 * item * heads + 16 * heads + 24 * width + 20 * heads * state + 12 * heads * chunk
    states = FP32 * batch * heads * (mamba.head_dim * state * (2 * chunks + 1) + (chunks + 1) ** 2)
    masks = 2 * chunk**2 + 2 * (chunks + 1) ** 2
    pairs = FP32 * tokens * heads * chunk
    gate = tokens * (16 * width + FP32 * groups)
    return (
        SavedTensors(component="qkv", kept=item * tokens * projected + convolved),
        SavedTensors(
            component=CORE,
            kept=tokens * of_token + states + 8 * heads + masks,
            in_forward=pairs,
            in_backward=2 * pairs,
        ),
        SavedTensors(
            component="proj",
            kept=gate + item * tokens * width,
            in_backward=FP32 * tokens * width,
            read_too=item * tokens * width,
        ),
    )


def _flash(sizes: Sizes, mamba: Mamba) -> Saved:
    """mamba_ssm's fused kernel (ops/triton/ssd_combined.py, `MambaSplitConv1dScanCombinedFn`): the product's result and the output
    before the gate; the backward computes convolution and states again. The gated norm keeps its input and 1/σ, the product
    that follows its own. From the source, not counted."""
    tokens, item, tp = sizes.tokens, sizes.item, sizes.tp
    width, groups = mamba.width // tp, mamba.groups_on_rank(tp)
    projected = products_on_rank(mamba.matrices(sizes.model), tp)["qkv"][0]
    output = item * tokens * width
    states = FP32 * tokens / mamba.chunk * width * mamba.state
    return (
        SavedTensors(component="qkv", kept=item * tokens * projected, in_forward=output),
        SavedTensors(
            component=CORE,
            kept=output,
            in_forward=states,
            in_backward=2 * states + item * tokens * (projected + width),
        ),
        SavedTensors(
            component="proj",
            kept=output + FP32 * tokens * groups + sizes.input_item * tokens * width,
            in_backward=2 * output,
            read_too=sizes.input_item * tokens * width,
        ),
    )
