"""Lightning attention (Qin et al., arXiv 2405.17381), as MiniMax-01 has it (arXiv 2501.08313)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.attention import CORE
from predict.layers.norms import normed_input
from predict.layers.part import Mixer
from predict.layers.saved_tensors import FP32, Saved, SavedTensors, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.exchanges import entering, exchange_of_keys, leaving
from predict.rank.module import Module
from predict.rank.share import RankShare
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.lightning_attention import LightningRecurrence
from sampling.operators.memory_bound import Stream, SwiGLU


@dataclass(frozen=True, kw_only=True, slots=True)
class LightningAttention(Mixer):
    """Linear attention with as many heads as attention has, each with its own keys and values; a norm and a gate before the output."""

    NAME: ClassVar[str] = "lightning"
    KINDS: ClassVar[tuple[str, ...]] = ("lightning_attention",)
    TITLE: ClassVar[str] = "lightning attention"
    IS_RECURRENT: ClassVar[bool] = True

    block: int
    """Tokens of a block, within which scores are computed as attention's are."""

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Query, key, value and gate, then the output."""
        width = model.q_width
        into = Matrix(product="qkv", outputs=width, inputs=model.hidden, split="outputs", head=model.head_dim)
        return (into,) * 4 + (Matrix(product="proj", outputs=model.hidden, inputs=width, split="inputs"),)

    def other_parameters(self, model: ModelSpec) -> int:
        """The scale of the norm of the outputs."""
        return model.q_width

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Decay, update and output of every head's state, forward and backward."""
        return 15.0 * model.heads * model.head_dim**2

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        products = products_on_rank(self.matrices(rank.model), rank.plan.tp)
        heads, head_dim = rank.model.heads // rank.plan.tp, rank.model.head_dim
        width = heads * head_dim
        recurrence = LightningRecurrence(
            dtype=rank.dtype,
            batch=rank.run.batch.micro,
            seq_len=rank.run.batch.seq_len,
            heads=heads,
            head_dim=head_dim,
            block=self.block,
        )
        activation = Stream(dtype=rank.dtype, size_bytes=2 * rank.item_bytes * rank.tokens * 3 * width)
        gate = SwiGLU(dtype=rank.dtype, tokens=rank.tokens, width=width)
        return (
            Module(name="qkv", works=((rank.gemm(*products["qkv"]), 1), (activation, 1)), exchanges=entering(rank)),
            Module(
                name=CORE, works=((recurrence, 1 / rank.plan.cp),), exchanges=exchange_of_keys(rank, width, 2 * width)
            ),
            Module(
                name="proj",
                works=((rank.norm(width, rows=rank.tokens), 1), (gate, 1), (rank.gemm(*products["proj"]), 1)),
                exchanges=leaving(rank),
            ),
        )

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """Queries, keys and values before and after their activation; the output, its norm's statistic, and its gate."""
        width = sizes.item * sizes.tokens * sizes.model.q_width / sizes.tp
        return (
            *normed_input(sizes, "qkv", is_module=False),
            SavedTensors(component="qkv", kept=3 * width),
            SavedTensors(component=CORE, kept=3 * width, in_backward=3 * width),
            SavedTensors(component="proj", kept=3 * width + FP32 * sizes.tokens, in_backward=width),
        )

    def cache(self, share: ServerShare) -> LayerCache:
        """A state [head_dim, head_dim] per head in fp32, whatever the sequence's length."""
        return LayerCache(sequence_bytes=share.model.heads // share.tp * share.model.head_dim**2 * DTYPE_BYTES["fp32"])

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        yield from Mixer.token_calls(self, share, tokens)
        gate = SwiGLU(dtype=share.activations, tokens=tokens, width=share.model.q_width // share.tp)
        yield "elementwise", gate, 1

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        """A decode reads and writes the state of its sequence."""
        yield Stream(dtype="fp32", size_bytes=round(2 * decodes * self.cache(share).sequence_bytes))

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        yield LightningRecurrence(
            dtype=share.activations,
            batch=1,
            seq_len=tokens,
            heads=share.model.heads // share.tp,
            head_dim=share.model.head_dim,
            block=self.block,
        )
