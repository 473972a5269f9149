"""Coefficients fitted to a table of measured serving runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from predict.serving.coefficients import Client, Coefficients, Weight
from predict.serving.step_model import StepModel
from predict.validate.serving.comparison import Comparison, first_token_us, first_token_waits, is_fitted_to
from predict.validate.serving.rows import Stage
from sampling.errors import SamplesError, UserError

LEAST_EXPERIMENTS = 3
"""Fewer leave nothing to judge a fit by."""


def fitted_coefficients(stages: Sequence[Stage], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the stages below saturation, then the client's time by their waits for a first token.

    SamplesError where there are too few experiments; UserError for a model whose weights are given.
    """
    if all(term.low == term.high for term in model.terms.values()):
        raise UserError(f"--model: {model.name} has weights of its own; fit kernels or formula")
    experiments = tuple(dict.fromkeys(stage.experiment for stage in stages if is_fitted_to(stage)))
    if len(experiments) < LEAST_EXPERIMENTS:
        raise SamplesError(
            f"{source}: {len(experiments)} experiments below saturation have a measured TPOT and TTFT; give at least "
            f"{LEAST_EXPERIMENTS}, so that each can be left out once"
        )
    prior = {name: Weight(value=term.prior, low=term.low, high=term.high) for name, term in model.terms.items()}
    draft = Coefficients(
        model=model.name,
        weights=prior,
        client=Client(),
        asynchronous=True,
        half_width=0.0,
        source=source,
        experiments=experiments,
    )
    comparison = Comparison(stages, draft)
    fit = comparison.fit
    low, high = fit.intervals()
    weights = {
        name: Weight(value=round(float(value), 4), low=round(float(least), 4), high=round(float(most), 4))
        for name, value, least, most in zip(model.terms, fit.weights, low, high, strict=True)
    }
    waits = [wait for _, wait in first_token_waits(comparison, set(experiments))]
    return replace(
        draft,
        weights=weights,
        client=Client(first_token_us=round(first_token_us(waits), 1)),
        half_width=round(fit.half_width(), 4),
    )
