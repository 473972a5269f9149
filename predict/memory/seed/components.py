"""The seed's memory formulas by component, as they are printed (Primus "Projection", sections Parameter Estimation and
Activation Memory).

Every tensor has two bytes an element. A component's activations are what one microbatch keeps of it for the backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from predict.model.layer_kinds import LayerKind
from predict.model.spec import ModelSpec
from predict.run.training_run import TrainingRun
from predict.workload.rank.weights import padded_vocabulary

ITEM_BYTES = 2
FP32_BYTES = 4
Softmax = Literal["as_queries", "log_sum_exp"]
"""Width of what flash attention keeps of its softmax: the formula says that of the queries, one of the worked examples
(0.51 GB of attention, 18.20 GB a layer) a number of four bytes a head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedComponent:
    """`count` alike parts; parameters and bytes are those of one."""

    name: str
    parameters: int = 0
    activation_bytes: int = 0
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedLayer:
    """A layer of one kind on one rank."""

    name: str
    parts: tuple[SeedComponent, ...]

    @property
    def parameters(self) -> int:
        return sum(part.count * part.parameters for part in self.parts)

    @property
    def activation_bytes(self) -> int:
        return sum(part.count * part.activation_bytes for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedShapes:
    """A run as the seed's formulas see it; `ep` 1 gives the parameters of a layer over all ranks."""

    run: TrainingRun
    ep: int
    softmax: Softmax = "as_queries"

    @property
    def model(self) -> ModelSpec:
        return self.run.model

    @property
    def tokens(self) -> int:
        """MBS × S / (TP × CP), sequence parallel or not."""
        plan, batch = self.run.plan, self.run.batch
        return batch.micro * batch.seq_len // (plan.tp * plan.cp)

    @property
    def sbh_bytes(self) -> int:
        """The hidden states of a microbatch."""
        return self.tokens * self.model.hidden * ITEM_BYTES

    @property
    def vocabulary_parameters(self) -> int:
        """V × H, of the embedding and of the output layer."""
        return padded_vocabulary(self.model.vocab, self.run.plan.tp) * self.model.hidden

    def layer(self, kind: LayerKind) -> SeedLayer:
        """3 norms, attention, 2 residuals, and an MLP or a router with its experts."""
        parts = (
            SeedComponent(
                name="layer_norm", parameters=2 * self.model.hidden, activation_bytes=self.sbh_bytes, count=3
            ),
            SeedComponent(
                name="self_attention",
                parameters=self._attention_parameters(),
                activation_bytes=self._attention_activation_bytes(),
            ),
            SeedComponent(name="residual_add", activation_bytes=self.sbh_bytes, count=2),
            *(self._mixture() if kind.sparse else self._mlp()),
        )
        return SeedLayer(name=f"{'moe' if kind.sparse else 'dense'}_transformer_layer", parts=parts)

    def embedding(self) -> SeedComponent:
        return SeedComponent(name="embedding", parameters=self.vocabulary_parameters, activation_bytes=self.sbh_bytes)

    def end(self) -> tuple[SeedComponent, ...]:
        """Final norm and output layer; the seed names a loss too, and prints no formula for it."""
        vocab = padded_vocabulary(self.model.vocab, self.run.plan.tp)
        return (
            SeedComponent(name="final_layernorm", parameters=2 * self.model.hidden, activation_bytes=self.sbh_bytes),
            SeedComponent(
                name="output_layer",
                parameters=self.vocabulary_parameters,
                activation_bytes=self.tokens * vocab * ITEM_BYTES,
            ),
        )

    def _attention_parameters(self) -> int:
        """2 × H² × (1 + G/A) × P, which is 2 · H · (A + G) · d; latent attention as q_term + kv_term + pos + out."""
        model = self.model
        if model.latent is not None:
            return model.latent.elements_per_token(model) + model.latent.other_parameters(model)
        return 2 * model.hidden * (model.q_width + model.kv_width)

    def _attention_activation_bytes(self) -> int:
        """Q + 2 × KV + output + softmax statistics, two bytes each."""
        model = self.model
        head_dim = model.latent.query_dim if model.latent else model.head_dim
        queries, keys = model.heads * head_dim, model.kv_heads * head_dim
        widths = queries + 2 * keys + model.hidden
        if self.softmax == "log_sum_exp":
            return self.tokens * (widths * ITEM_BYTES + model.heads * FP32_BYTES)
        return self.tokens * (widths + queries) * ITEM_BYTES

    def _mlp(self) -> Iterator[SeedComponent]:
        """tokens × (3 × FFN + H) × 2: gate, up, their product, and the output; without a gate 2 × FFN."""
        model = self.model
        matrices = 3 if model.gated else 2
        yield SeedComponent(
            name="mlp",
            parameters=matrices * model.hidden * model.ffn,
            activation_bytes=self.tokens * (matrices * model.ffn + model.hidden) * ITEM_BYTES,
        )

    def _mixture(self) -> Iterator[SeedComponent]:
        """H × NE of router, NE/EP experts and the shared one; tokens × (topk + N_shared) × (H + 3 × FFN_e) × 2."""
        model, experts = self.model, self.model.experts
        assert experts is not None  # a model with sparse layers has them
        matrices = experts.into + 1
        yield SeedComponent(name="router", parameters=model.hidden * experts.count, activation_bytes=self.sbh_bytes)
        copies = experts.topk + (1 if experts.shared_ffn else 0)
        widths = experts.count * experts.ffn // self.ep + experts.shared_ffn
        yield SeedComponent(
            name="mlp",
            parameters=matrices * model.hidden * widths,
            activation_bytes=self.tokens * copies * (model.hidden + matrices * experts.ffn) * ITEM_BYTES,
        )
