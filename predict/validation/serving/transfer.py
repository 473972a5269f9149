"""Coefficients fitted to the stages of one GPU alone, judged on those of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from predict.serving.fitting import LEAST_EXPERIMENTS
from predict.serving.step_model import StepModel
from predict.validation.serving.comparison import SUB, Compared, Comparison, is_fitted_to
from predict.validation.serving.fitted import fitted_coefficients
from predict.validation.serving.rows import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Stages below saturation of other GPUs than the one that the coefficients were fitted on."""

    fitted_on: str
    """A GPU by its name in the table; empty where nothing could be fitted."""
    compared: Sequence[Compared] = ()


def transferred(stages: Sequence[Stage], model: StepModel) -> Transfer:
    """The stages of other GPUs by coefficients of the one with the most stages. Only the kernels' own prices are those of their GPU.

    None are compared where there is one GPU, where it has too few experiments, or where the model's weights are given.
    """
    fitting = [stage for stage in stages if is_fitted_to(stage)]
    counts = Counter(stage.gpu for stage in fitting)
    most = max(counts, key=lambda gpu: counts[gpu], default="")
    experiments = {stage.experiment for stage in fitting if stage.gpu == most}
    others = [stage for stage in stages if stage.gpu != most and stage.regime == SUB]
    if not others or not model.is_fitted or len(experiments) < LEAST_EXPERIMENTS:
        return Transfer(fitted_on="")
    own = [stage for stage in stages if stage.gpu == most]
    comparison = Comparison(others, fitted_coefficients(own, model, f"the stages on {most}"))
    return Transfer(fitted_on=most, compared=[comparison.compared(case) for case in comparison.cases])
