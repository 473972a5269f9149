"""Linear attention: Gated DeltaNet (Yang et al., arXiv 2412.06464)."""

from collections.abc import Iterator, Mapping
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
from sampling.files.faults import Fault, near_multiples
from sampling.files.schema import Scalar
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.linear_attention import GatedDelta
from sampling.operators.memory_bound import RMSNorm, Stream

CHUNK = 64
"""Tokens of a chunk of the gated delta rule, in transformers 5.23 and flash-linear-attention; the last chunk of a sequence is computed in
full."""
STATE = "fp32"
"""Dtype of a server's states, as `mamba_ssm_dtype` of Qwen3.5's config.json has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearAttention(Mixer):
    """A short causal convolution of queries, keys and values, then a recurrence with one state per head."""

    NAME: ClassVar[str] = "linear"
    KINDS: ClassVar[tuple[str, ...]] = ("linear",)
    TITLE: ClassVar[str] = "linear attention"
    IS_RECURRENT: ClassVar[bool] = True
    ZERO_CENTRED_NORMS: ClassVar[bool] = True
    LEDGER: ClassVar[str] = "gated_deltanet"

    key_heads: int
    """Heads of the queries, and of the keys."""
    value_heads: int
    """Heads of the values, each with a state [key_dim, value_dim]; a multiple of `key_heads`."""
    key_dim: int
    """Width of a head of queries, and of keys."""
    value_dim: int
    """Width of a head of values."""
    conv: int
    """Tokens that the convolution spans."""

    @classmethod
    def derived(cls, fields: dict[str, Scalar], names: Mapping[str, str]) -> Iterator[Fault]:
        keys, values = fields.get("linear.key_heads"), fields.get("linear.value_heads")
        if isinstance(keys, int) and isinstance(values, int) and values % keys:
            problem = f"{values} is not a multiple of the {keys} key heads ({names['linear.key_heads']})"
            yield Fault(path=names["linear.value_heads"], problem=f"{problem}; set {near_multiples(values, keys)}")

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Queries, keys, values, the output's gate, and decay and step of each head are one product. Each weight of the
        convolution multiplies once per token too."""
        into = (self.key_width, self.key_width, self.value_width, self.value_width, 2 * self.value_heads)
        return (
            *(Matrix(product="qkv", outputs=width, inputs=model.hidden, split="outputs") for width in into),
            Matrix(product=CONVOLUTION, outputs=self.conv_width, inputs=self.conv, split="outputs", is_linear=False),
            Matrix(product="proj", outputs=model.hidden, inputs=self.value_width, split="inputs"),
        )

    def other_parameters(self, model: ModelSpec) -> int:
        """A decay rate and a step bias per head, and the scale of the norm of the outputs."""
        return 2 * self.value_heads + self.value_dim

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Decay, read, update and output of every head's state: 15 FLOPs per element, forward and backward."""
        return 15.0 * self.value_heads * self.key_dim * self.value_dim

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """Chunks of C tokens (Yang et al., arXiv 2412.06464, section 3.3), per token and value head: products within a
        chunk 2C(2dₖ+dᵥ), with the state 6·dₖ·dᵥ, and the triangular solve C(dₖ+dᵥ)."""
        keys, values = self.key_dim, self.value_dim
        per_token = 2 * CHUNK * (2 * keys + values) + 6 * keys * values + CHUNK * (keys + values)
        padded = -(-length // CHUNK) * CHUNK
        return self.value_heads * padded * per_token

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        model, tp = rank.model, rank.plan.tp
        keys, values = self.key_heads * self.key_dim // tp, self.value_heads * self.value_dim // tp
        heads = self.value_heads // tp
        products = products_on_rank(self.matrices(model), tp)
        delta = GatedDelta(
            dtype=rank.dtype,
            batch=rank.run.batch.micro,
            seq_len=rank.run.batch.seq_len,
            heads=self.key_heads // tp,
            value_heads=heads,
            head_dim=self.key_dim,
            value_dim=self.value_dim,
        )
        mixed = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * (2 * keys + values))
        gated = RMSNorm(dtype=rank.dtype, tokens=rank.tokens * heads, hidden=self.value_dim)
        return (
            Module(
                name="qkv",
                works=((rank.gemm(*products["qkv"]), 1), (mixed, 1)),
                exchanges=entering(rank),
            ),
            Module(
                name=CORE,
                works=((delta, 1 / rank.plan.cp),),
                exchanges=exchange_of_keys(rank, values, 2 * keys + values),
            ),
            Module(name="proj", works=((gated, 1), (rank.gemm(*products["proj"]), 1)), exchanges=leaving(rank)),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        recurrence = _flash if sizes.profile.flash_linear else _in_torch
        return (*normed_input(sizes, "qkv", is_module=False, input_of=("qkv",)), *recurrence(sizes, self))

    def cache(self, share: ServerShare) -> LayerCache:
        """A state per head in fp32 and the convolution's last tokens, whatever the sequence's length."""
        states = self._heads(share) * self.key_dim * self.value_dim * DTYPE_BYTES[STATE]
        last_tokens = self.conv_width // share.tp * (self.conv - 1) * DTYPE_BYTES[share.activations]
        return LayerCache(sequence_bytes=states + last_tokens)

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        matrices = (matrix for matrix in self.matrices(share.model) if matrix.product != CONVOLUTION)
        yield from served_products(share, matrices, tokens)
        convolved = 2 * DTYPE_BYTES[share.activations] * tokens * (self.conv_width // share.tp)
        yield "elementwise", Stream(dtype=share.activations, size_bytes=convolved), 1
        normed = RMSNorm(dtype=share.activations, tokens=tokens * self._heads(share), hidden=self.value_dim)
        yield "elementwise", normed, 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        """A decode reads and writes the whole state of its sequence."""
        yield Stream(dtype=STATE, size_bytes=round(2 * decodes * self.cache(share).sequence_bytes))

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        yield GatedDelta(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            heads=max(1, self.key_heads // share.tp),
            value_heads=self._heads(share),
            head_dim=self.key_dim,
            value_dim=self.value_dim,
        )

    def _heads(self, share: ServerShare) -> int:
        """Heads with a state on one GPU."""
        return max(1, self.value_heads // share.tp)


def _in_torch(sizes: Sizes, linear: LinearAttention) -> Saved:
    """transformers' torch fallback, byte-equal in bf16 where 64 divides S: B·S[32·vh·kd + 30·vh·vd + 1318·vh] +
    e·B·Dc(2S + conv − 1) + 8·vh + (B·S/64)(4·vh + 4·vh·kd·vd) + 4096, with Dc channels of the convolution."""
    tokens, batch, tp = sizes.tokens, sizes.rank.run.batch.micro, sizes.tp
    heads, keys, values = linear.value_heads // tp, linear.key_dim, linear.value_dim
    output = sizes.item * tokens * heads * values
    per_token = 32 * heads * keys + 30 * heads * values + 1318 * heads
    states = tokens / CHUNK * FP32 * heads * (1 + keys * values)
    pairs = FP32 * CHUNK * heads * tokens
    convolved = sizes.item * linear.conv_width // tp * (2 * tokens + batch * (linear.conv - 1))
    return (
        SavedTensors(component="qkv", kept=convolved),
        SavedTensors(
            component=CORE,
            kept=tokens * per_token - output + states + 8 * heads + CHUNK**2,
            in_forward=pairs,
            in_backward=2 * pairs,
        ),
        SavedTensors(component="proj", kept=output, in_backward=output, read_too=output),
    )


def _flash(sizes: Sizes, linear: LinearAttention) -> Saved:
    """flash-linear-attention (fla/ops/gated_delta_rule/chunk.py): queries and keys normed with their fp32 norms, values, decay,
    step and the [64, 64] system of each chunk; the backward computes the states again. The convolution keeps its input, the
    gated norm its output and gate. From the source, not counted."""
    tokens, item, tp = sizes.tokens, sizes.item, sizes.tp
    heads, key_heads = linear.value_heads // tp, max(1, linear.key_heads // tp)
    keys, values = key_heads * linear.key_dim, heads * linear.value_dim
    mixed, output = item * tokens * (2 * keys + values), item * tokens * values
    small = tokens * (FP32 * heads + item * heads + 2 * FP32 * key_heads + 2 * FP32 * heads)
    return (
        SavedTensors(component="qkv", kept=mixed, in_forward=mixed),
        SavedTensors(
            component=CORE,
            kept=mixed + item * tokens * heads * CHUNK + small,
            in_forward=2 * output,
            in_backward=2 * mixed + item * tokens * heads * (linear.key_dim * linear.value_dim) / CHUNK,
        ),
        SavedTensors(
            component="proj",
            kept=2 * output + FP32 * tokens * heads + sizes.input_item * tokens * values,
            in_backward=2 * output,
            read_too=sizes.input_item * tokens * values,
        ),
    )
