"""Short convolutions of LFM2 (Liquid AI, arXiv 2511.23404): two gates around a causal convolution of a few tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.attention import CORE
from predict.layers.norms import normed_input
from predict.layers.part import CONVOLUTION, Mixer
from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare, served_products
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.exchanges import entering, leaving
from predict.rank.module import Module
from predict.rank.share import RankShare
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.memory_bound import Stream
from sampling.operators.state_space import CausalConv

GATE_TENSORS = 3
"""Tensors that a gate's product moves: two read, one written; its backward moves five."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortConv(Mixer):
    """A gated convolution over the last tokens, as wide as the residual stream (LFM2)."""

    NAME: ClassVar[str] = "short_conv"
    KINDS: ClassVar[tuple[str, ...]] = ("conv",)
    TITLE: ClassVar[str] = "short convolution"
    IS_RECURRENT: ClassVar[bool] = True
    LEDGER: ClassVar[str] = "short_conv"

    conv: int
    """Tokens that the convolution spans."""

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Both gates and the input are one product. Each weight of the convolution multiplies once per token too."""
        hidden = model.hidden
        return (
            *[Matrix(product="qkv", outputs=hidden, inputs=hidden, split="outputs")] * 3,
            Matrix(product=CONVOLUTION, outputs=hidden, inputs=self.conv, split="outputs", is_linear=False),
            Matrix(product="proj", outputs=hidden, inputs=hidden, split="inputs"),
        )

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """The products of the convolution are counted with the matrices."""
        return 0

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        products = products_on_rank(self.matrices(rank.model), rank.plan.tp)
        batch, width = rank.run.batch, rank.model.hidden // rank.plan.tp
        convolved = CausalConv(
            dtype=rank.dtype,
            batch=batch.micro,
            seq_len=batch.seq_len // rank.plan.cp,
            channels=width,
            width=self.conv,
        )
        gate = Stream(dtype=rank.dtype, size_bytes=GATE_TENSORS * rank.item_bytes * rank.tokens * width)
        return (
            Module(name="qkv", works=((rank.gemm(*products["qkv"]), 1),), exchanges=entering(rank)),
            Module(name=CORE, works=((gate, 2), (convolved, 1))),
            Module(name="proj", works=((rank.gemm(*products["proj"]), 1),), exchanges=leaving(rank)),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """T·e(H + 3H) + T·e·H and e·B·H(S + conv − 1) around the convolution, and T·e·H into the product, H per rank after the first
        (byte-equal, transformers 5.23 in torch's own operators)."""
        item, tokens = sizes.item, sizes.tokens
        width, batch = sizes.hidden // sizes.tp, sizes.rank.run.batch.micro
        one = item * tokens * width
        return (
            *normed_input(sizes, "qkv", is_module=False, input_of=("qkv",)),
            SavedTensors(component="qkv", kept=3 * one),
            SavedTensors(component=CORE, kept=2 * one + item * batch * width * (self.conv - 1), in_backward=2 * one),
            SavedTensors(component="proj", kept=one, in_backward=one, read_too=one),
        )

    def cache(self, share: ServerShare) -> LayerCache:
        """The last tokens that the convolution spans, whatever the sequence's length."""
        width = share.model.hidden // share.tp
        return LayerCache(sequence_bytes=width * (self.conv - 1) * DTYPE_BYTES[share.activations])

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        matrices = (matrix for matrix in self.matrices(share.model) if matrix.product != CONVOLUTION)
        yield from served_products(share, matrices, tokens)
        moved = (2 * GATE_TENSORS + 2) * DTYPE_BYTES[share.activations] * tokens * (share.model.hidden // share.tp)
        yield "elementwise", Stream(dtype=share.activations, size_bytes=moved), 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        """A decode reads and writes its sequence's last tokens."""
        size = round(2 * decodes * self.cache(share).sequence_bytes)
        yield Stream(dtype=share.activations, size_bytes=size)

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        yield CausalConv(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            channels=share.model.hidden // share.tp,
            width=self.conv,
        )
