"""The memory formulas of Primus Projection by component, as its document prints them (sections Parameter Estimation and
Activation Memory).

Every tensor has two bytes per element. A component's activations are the bytes that one microbatch keeps for the backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from predict.model.spec import LayerKind, ModelSpec
from predict.rank.weights import padded_vocabulary
from predict.run.training_run import TrainingRun

ITEM_BYTES = 2
FP32_BYTES = 4
Softmax = Literal["as_queries", "log_sum_exp"]
"""The softmax statistics that flash attention keeps: as wide as the queries in the formula, four bytes per head in one of the worked
examples (0.51 GB of attention, 18.20 GB per layer)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusComponent:
    """`count` equal components; parameters and bytes are those of one."""

    name: str
    parameters: int = 0
    activation_bytes: int = 0
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusLayer:
    """A layer of one kind on one rank."""

    name: str
    components: tuple[PrimusComponent, ...]

    @property
    def parameters(self) -> int:
        return sum(component.count * component.parameters for component in self.components)

    @property
    def activation_bytes(self) -> int:
        return sum(component.count * component.activation_bytes for component in self.components)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusShapes:
    """A run as Primus Projection sees it; `ep` 1 gives the parameters of a layer over all ranks."""

    run: TrainingRun
    ep: int
    softmax: Softmax = "as_queries"

    @property
    def model(self) -> ModelSpec:
        return self.run.model

    @property
    def tokens(self) -> int:
        """MBS × S / (TP × CP), with or without sequence parallelism."""
        plan, batch = self.run.plan, self.run.batch
        return batch.micro * batch.seq_len // (plan.tp * plan.cp)

    @property
    def hidden_bytes(self) -> int:
        """The hidden states of a microbatch."""
        return self.tokens * self.model.hidden * ITEM_BYTES

    @property
    def vocabulary(self) -> int:
        return padded_vocabulary(self.model.vocab, self.run.plan.tp)

    def layer(self, kind: LayerKind) -> PrimusLayer:
        """Three norms, attention, two residual additions, and an MLP or a router with its experts."""
        components = (
            PrimusComponent(
                name="layer_norm", parameters=2 * self.model.hidden, activation_bytes=self.hidden_bytes, count=3
            ),
            PrimusComponent(
                name="self_attention",
                parameters=self._attention_parameters(),
                activation_bytes=self._attention_activation_bytes(),
            ),
            PrimusComponent(name="residual_add", activation_bytes=self.hidden_bytes, count=2),
            *(self._mixture() if kind.sparse else self._mlp()),
        )
        return PrimusLayer(name=f"{'moe' if kind.sparse else 'dense'}_transformer_layer", components=components)

    def embedding(self) -> PrimusComponent:
        parameters = self.vocabulary * self.model.hidden
        return PrimusComponent(name="embedding", parameters=parameters, activation_bytes=self.hidden_bytes)

    def output(self) -> tuple[PrimusComponent, ...]:
        """Final norm and output layer; Primus names a loss too, and prints no formula for it."""
        return (
            PrimusComponent(
                name="final_layernorm", parameters=2 * self.model.hidden, activation_bytes=self.hidden_bytes
            ),
            PrimusComponent(
                name="output_layer",
                parameters=self.vocabulary * self.model.hidden,
                activation_bytes=self.tokens * self.vocabulary * ITEM_BYTES,
            ),
        )

    def _attention_parameters(self) -> int:
        """2 × H² × (1 + G/A) × P, which is 2 · H · (A + G) · d; latent attention as q_term + kv_term + pos + out."""
        model = self.model
        if model.attention.compressed_width:
            return model.attention.elements_per_token(model) + model.attention.compressed_width
        return 2 * model.hidden * (model.q_width + model.kv_width)

    def _attention_activation_bytes(self) -> int:
        """Queries, keys, values, output and softmax statistics, two bytes per element."""
        model = self.model
        queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        widths = queries + 2 * keys + model.hidden
        if self.softmax == "log_sum_exp":
            return self.tokens * (widths * ITEM_BYTES + model.heads * FP32_BYTES)
        return self.tokens * (widths + queries) * ITEM_BYTES

    def _mlp(self) -> Iterator[PrimusComponent]:
        """tokens × (3 × FFN + H) × 2: gate, up, their product, and the output; without a gate 2 × FFN."""
        model = self.model
        matrices = 3 if model.gated else 2
        yield PrimusComponent(
            name="mlp",
            parameters=matrices * model.hidden * model.ffn,
            activation_bytes=self.tokens * (matrices * model.ffn + model.hidden) * ITEM_BYTES,
        )

    def _mixture(self) -> Iterator[PrimusComponent]:
        """H × NE of router, NE/EP experts and the shared one; tokens × (topk + N_shared) × (H + 3 × FFN_e) × 2."""
        model, experts = self.model, self.model.experts
        assert experts is not None  # a model with sparse layers has them
        matrices = experts.into + 1
        yield PrimusComponent(
            name="router", parameters=model.hidden * experts.count, activation_bytes=self.hidden_bytes
        )
        copies = experts.topk + (1 if experts.shared_ffn else 0)
        widths = experts.count * experts.ffn // self.ep + experts.shared_ffn
        yield PrimusComponent(
            name="mlp",
            parameters=matrices * model.hidden * widths,
            activation_bytes=self.tokens * copies * (model.hidden + matrices * experts.ffn) * ITEM_BYTES,
        )
