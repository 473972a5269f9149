"""Weights that one rank holds: its share of the dense ones, and of the experts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from predict.model.spec import LayerKind, ModelSpec
from predict.run.plan import Plan

KEPT = 256
"""Layers whose weights are kept, by kind and by the ranks that share them."""
VOCABULARY_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to a multiple of this times tp (`make_vocab_size_divisible_by`, arguments.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Elements on one rank."""

    dense: int = 0
    experts: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(dense=self.dense + other.dense, experts=self.experts + other.experts)

    def __mul__(self, count: int) -> Weights:
        return Weights(dense=self.dense * count, experts=self.experts * count)

    @property
    def total(self) -> int:
        return self.dense + self.experts


def layer_weights(model: ModelSpec, plan: Plan, kind: LayerKind) -> Weights:
    """One layer: tp divides what its matrices split, ep and etp the routed experts; norms are whole on every rank."""
    return _layer_weights(model, kind, plan.tp, plan.ep * plan.etp)


@lru_cache(maxsize=KEPT)
def _layer_weights(model: ModelSpec, kind: LayerKind, tp: int, expert_ranks: int) -> Weights:
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    matrices = (*mixer.matrices(model), *feed_forward.matrices(model))
    whole = model.norms_a_layer * model.norm_parameters
    whole += sum(matrix.replicated_parameters(tp) for matrix in matrices)
    split = mixer.other_parameters(model) + feed_forward.other_parameters(model)
    split += sum(matrix.split_parameters(tp) for matrix in matrices)
    return Weights(dense=whole + split // tp, experts=feed_forward.routed_parameters(model) // expert_ranks)


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
    """The norms and the product that join hidden state and next token's embedding, for one further token."""
    return Weights(dense=2 * model.hidden**2 // plan.tp + 3 * model.norm_parameters)


def summed(many: Iterable[Weights]) -> Weights:
    return sum(many, Weights())
