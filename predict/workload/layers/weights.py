"""Weights that one rank holds: those that every replica has, and its share of the experts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.model.spec import LayerKind, ModelSpec
from predict.run.plan import Plan

VOCABULARY_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to a multiple of this times tp (`make_vocab_size_divisible_by`, arguments.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Elements on one rank."""

    dense: int = 0
    experts: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(dense=self.dense + other.dense, experts=self.experts + other.experts)

    @property
    def total(self) -> int:
        return self.dense + self.experts


def layer_weights(model: ModelSpec, plan: Plan, kind: LayerKind) -> Weights:
    """Of one layer: tp divides attention and MLP, ep and etp the experts; norms, router and latent ways down are whole.

    Where there are fewer key and value heads than ranks of tp, each has one, which others hold too.
    """
    norms = model.norms_a_layer * model.norm_parameters
    whole, split = norms, model.mixer_parameters(kind)
    if model.latent and kind.mixer != "linear":
        down = model.hidden * (model.latent.q_rank + model.latent.kv_rank + model.latent.rope_dim)
        whole, split = whole + down, split - down
    elif kind.mixer != "linear" and plan.tp > model.kv_heads:
        head = 2 * (model.hidden + model.attention_bias) * model.head_dim
        whole, split = whole + head, split - model.kv_heads * head
    if not kind.sparse or model.experts is None:
        return Weights(dense=whole + (split + model.mlp_parameters) // plan.tp)
    experts = model.experts
    routed = experts.count * experts.expert_parameters(model.hidden)
    split += experts.shared_parameters(model.hidden)
    return Weights(
        dense=whole + experts.router_parameters(model.hidden) + split // plan.tp,
        experts=routed // (plan.ep * plan.etp),
    )


def padded_vocabulary(vocab: int, tp: int) -> int:
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-vocab // multiple) * multiple


def embedding_weights(model: ModelSpec, plan: Plan) -> Weights:
    positions = 0 if model.rope else model.max_positions
    return Weights(dense=(padded_vocabulary(model.vocab, plan.tp) // plan.tp + positions) * model.hidden)


def head_weights(model: ModelSpec, plan: Plan, *, shares_embedding: bool) -> Weights:
    """The final norm and, unless the rank's embedding serves for it, the output matrix; and what predicts more tokens."""
    own = output_weights(model, plan, shares_embedding=shares_embedding)
    return summed(
        [own, *[joining_weights(model, plan) + layer_weights(model, plan, model.mtp_kind)] * model.mtp_layers]
    )


def output_weights(model: ModelSpec, plan: Plan, *, shares_embedding: bool) -> Weights:
    """The final norm and the output matrix."""
    matrix = 0 if shares_embedding else padded_vocabulary(model.vocab, plan.tp) // plan.tp * model.hidden
    return Weights(dense=model.final_norm_parameters + matrix)


def joining_weights(model: ModelSpec, plan: Plan) -> Weights:
    """What makes one of the hidden state and the next token's embedding, for one further token."""
    return Weights(dense=2 * model.hidden**2 // plan.tp + 3 * model.norm_parameters)


def summed(many: Iterable[Weights]) -> Weights:
    return sum(many, Weights())
