"""Coefficients fitted to a table of measured serving runs."""

from __future__ import annotations

from collections.abc import Sequence

from predict.serving.coefficients import Coefficients
from predict.serving.fitting import draft_of, with_fit, with_grounds
from predict.serving.step_model import StepModel
from predict.validation.serving.comparison import Comparison, first_token_waits, is_fitted_to
from predict.validation.serving.rows import Stage


def fitted_coefficients(stages: Sequence[Stage], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the stages below saturation, then the client's time by their waits for a first token.

    SamplesError where there are too few experiments; UserError for a model whose weights are given.
    """
    experiments = tuple(dict.fromkeys(stage.experiment for stage in stages if is_fitted_to(stage)))
    draft = draft_of(model, source=source, experiments=experiments, asynchronous=True)
    comparison = Comparison(stages, draft)
    waits = [wait for _, wait in first_token_waits(comparison, set(experiments))]
    servers = [case.server for case in comparison.cases if is_fitted_to(case.stage)]
    return with_grounds(with_fit(draft, comparison.fit, waits), servers)
