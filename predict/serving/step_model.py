"""The models of a step, by name: features of a server's batches, and the weights that turn them into a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from predict.serving.batch import BatchSums
from predict.serving.formula import features_us, published_features_us
from predict.serving.kernels import kernel_features
from predict.serving.server import Server
from predict.serving.step_table import StepTable
from regressors.features.arrays import Floats
from sampling.errors import UserError
from sampling.files.faults import did_you_mean
from sampling.files.places import shipped_json

Features = Callable[[BatchSums], Floats]
"""The features of each batch on one server, shape (batches, features)."""
CONTEXT_STEP, EVEN_COLUMNS = 512, 17
"""Columns of the table of attention, beyond which their distance doubles."""
FAR = 1e6
"""Pairs, or keys, that give the slope of what is linear in them."""


def table_of(server: Server, features: Features, weights: Sequence[float], *, whole_prompt: bool) -> StepTable:
    """The table whose times are the features times `weights`."""

    def step_us(**given: Floats | float) -> Floats:
        whole: Floats = features(sums(**given)) @ np.asarray(weights)
        return whole

    engine = server.engine
    of_decode = 1 + server.speculation.drafts
    decodes = np.arange(engine.max_num_seqs + 1.0)
    # the decode that is served last may have fewer drafts than its time counts
    tokens = np.arange(1.0, engine.max_num_batched_tokens + of_decode)
    chunk = step_us(prefills=1.0, prefill_tokens=2.0)[0]
    request_us = step_us(prefills=2.0, prefill_tokens=2.0)[0] - chunk
    prefill_token_us = (
        step_us(decodes=1.0, prefills=1.0, prefill_tokens=1.0 + of_decode)[0]
        - step_us(decodes=2.0, prefills=1.0, prefill_tokens=1.0)[0]
        + request_us
    ) / of_decode
    mixed = step_us(prefills=1.0, prefill_tokens=tokens) - request_us - prefill_token_us * tokens
    # decodes differ from as many tokens of a chunk by more than the keys that they read where they have states
    in_chunk = step_us(prefills=1.0, prefill_tokens=of_decode * decodes + 1)
    own = step_us(decodes=decodes, prefills=1.0, prefill_tokens=1.0) - in_chunk
    own += (of_decode * prefill_token_us - request_us) * decodes
    alone = step_us(decodes=decodes)
    keys = contexts_of(server)
    shape = (len(decodes), len(keys))

    def grid_us(of: str) -> Floats:
        return step_us(decodes=np.repeat(decodes, len(keys)), **{of: np.outer(decodes, keys).ravel()}).reshape(shape)

    pairs = "whole_prompt_pairs" if whole_prompt else "prefill_pairs"

    def slope_us(of: str) -> float:
        return float(step_us(prefills=1.0, prefill_tokens=2.0, **{of: FAR})[0] - chunk) / FAR

    return StepTable(
        decode_us=alone - own - request_us * decodes,
        mixed_us=np.concatenate(([0.0], mixed)),
        attention_us=grid_us("decode_context") - (alone - own)[:, None],
        contexts=keys,
        prefill_token_us=prefill_token_us,
        pair_us=slope_us(pairs),
        whole_prompt=whole_prompt,
        context_us=slope_us("prefill_context"),
        seen=server.seen,
        window_attention_us=grid_us("window_keys") - alone[:, None] if server.seen.most else np.zeros((0, 0)),
        window_pair_us=slope_us("window_pairs"),
        window_context_us=slope_us("window_context"),
        request_us=request_us,
        speculation=server.speculation,
    )


def contexts_of(server: Server) -> Floats:
    """The contexts at which the table has attention, in tokens: up to the model's positions, with the window of its layers one of them,
    for there the keys that are read cease to grow."""
    contexts = [CONTEXT_STEP * place for place in range(EVEN_COLUMNS)]
    while contexts[-1] < max(server.model.max_positions, 2 * server.seen.most):
        contexts.append(2 * contexts[-1])
    return np.array(sorted({*contexts, server.seen.most}), dtype=np.float64)


def sums(**given: Floats | float) -> BatchSums:
    """The sums given, each a number or one per batch, and zeros for the others."""
    size = max(np.size(value) for value in given.values())
    columns = {each.name: np.zeros(size) for each in fields(BatchSums)}
    stated = {name: np.broadcast_to(np.asarray(value, dtype=np.float64), size) for name, value in given.items()}
    return BatchSums(**{**columns, **stated})


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTerm:
    """A weight of a model: its meaning, and where it lies before any measurement. `low` = `high` for one that is not fitted."""

    meaning: str
    prior: float
    width: float
    """Standard deviation of the prior."""
    low: float
    high: float
    title: str = ""
    """Plain name where the one in files is a symbol."""
    of_host: bool = False
    """Whether it is the host's own time, which another engine may not need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepModel:
    """Features and terms, in the same order."""

    name: str
    features_of: Callable[[Server], Features]
    terms: Mapping[str, StepTerm]
    whole_prompt: bool = False
    """Pairs are those of whole prompts, as the published formula counts them."""
    finds_prompts: bool = True
    """Its weights belong to prompts that the prefix cache may hold; those of the published formula to prompts computed in full."""

    def title_of(self, name: str) -> str:
        """The plain name of a term, with its symbol where it has one; another part of a step's ledger by its name."""
        term = self.terms.get(name)
        return term.title if term and term.title else name

    @property
    def is_fitted(self) -> bool:
        """Whether measurements can move its weights."""
        return any(term.low < term.high for term in self.terms.values())

    def without_host(self, weights: Mapping[str, float]) -> dict[str, float]:
        """The weights with none on the host's own time."""
        return {name: 0.0 if self.terms[name].of_host else weight for name, weight in weights.items()}

    def table(self, server: Server, weights: Mapping[str, float]) -> StepTable:
        """The times of a server's steps under these weights."""
        return self.table_from(server, self.features_of(server), weights)

    def table_from(self, server: Server, features: Features, weights: Mapping[str, float]) -> StepTable:
        """The same from features that are known."""
        ordered = [weights[name] for name in self.terms]
        return table_of(server, features, ordered, whole_prompt=self.whole_prompt)


_TERMS: Mapping[str, Mapping[str, StepTerm]] = {
    model: {name: StepTerm(**fields) for name, fields in terms.items()}
    for model, terms in shipped_json("step-models.json").items()
}
"""Model → its terms. The priors and bounds of `formula`: prompts that are cached say nothing of β₁: it is the inverse of the share of peak
that products of prompts reach, 0.6 to 0.8, and less than 1 would be faster than light (the published 0.393 computes cached prompts). β₃ is
the inverse of a share of bandwidth. β₅ is the host's."""
KERNELS = StepModel(name="kernels", features_of=kernel_features, terms=_TERMS["kernels"])
"""Every kernel priced, and at most seven fitted factors."""
FORMULA = StepModel(name="formula", features_of=lambda server: partial(features_us, server), terms=_TERMS["formula"])
"""The additive formula, mended."""
PUBLISHED = StepModel(
    name="published",
    features_of=lambda server: partial(published_features_us, server),
    terms=_TERMS["published"],
    whole_prompt=True,
    finds_prompts=False,
)
"""The additive formula as published, with its own weights and its faults."""
MODELS: Mapping[str, StepModel] = {model.name: model for model in (KERNELS, FORMULA, PUBLISHED)}


def step_model(name: str) -> StepModel:
    """The model of a name. UserError for another name."""
    if name not in MODELS:
        raise UserError(f"--model: {name!r} is not one of {', '.join(MODELS)}{did_you_mean(name, MODELS)}")
    return MODELS[name]
