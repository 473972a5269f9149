"""Attention and an MLP side by side in one part, as in Flux's single-stream blocks: they read one norm, and one product joins their
outputs.

Of diffusers, models/transformers/transformer_flux.py, FluxSingleTransformerBlock.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from predict.layers.attention import Attention
from predict.layers.saved_tensors import Saved, SavedTensors, Sizes
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.module import Module
from predict.rank.share import RankShare
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.operators.memory_bound import Gelu


@dataclass(frozen=True, kw_only=True, slots=True)
class SingleStream(Attention):
    """Heads, biases and norms of queries and keys are those of the model's own attention; all tokens are one stream."""

    ffn: int
    """Inner width of the MLP."""

    NAME: ClassVar[str] = "single"
    KINDS: ClassVar[tuple[str, ...]] = ("single",)
    TITLE: ClassVar[str] = "attention beside an MLP"
    IS_ATTENTION: ClassVar[bool] = False
    IS_PLAIN: ClassVar[bool] = False

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """Query, key and value, the MLP's first product, and the product of what attention and MLP make."""
        *into, out = Attention.matrices(self, model)
        up = Matrix(
            product="up", name="up_proj", outputs=self.ffn, inputs=model.hidden, split="outputs", bias=model.mlp_bias
        )
        return (*into, up, replace(out, inputs=out.inputs + self.ffn))

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        product = products_on_rank(self.matrices(rank.model), rank.plan.tp)["up"]
        activated = Gelu(dtype=rank.dtype, tokens=rank.tokens, width=product[0])
        *attention, out = Attention.modules(self, rank, kind)
        return (*attention, Module(name="mlp", works=((rank.gemm(*product), 1), (activated, 1))), out)

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """Attention's with its output, T·e·F bytes that the MLP's activation reads, and a copy of both outputs as one, T·e(A·d + F), with A
        and F per rank."""
        *attention, _ = Attention.saved_tensors(self, sizes)
        mixed = float(sizes.item * sizes.tokens * sizes.model.q_width // sizes.tp)
        inner = float(sizes.item * sizes.tokens * self.ffn // sizes.tp)
        return (
            *attention,
            SavedTensors(component="mlp", kept=inner, if_recomputed={"mlp": 0.0}, in_backward=inner),
            SavedTensors(component="proj", kept=2 * mixed + inner, in_backward=mixed + inner, read_too=mixed + inner),
        )
