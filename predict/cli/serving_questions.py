"""The questions of --slo and --price and the step's coefficients, in every command that takes them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predict.serving.coefficients import Coefficients
    from predict.serving.questions import Questions


def read_questions(options: argparse.Namespace) -> Questions:
    """The objectives and the price; UserError for all of them that are none."""
    from predict.serving.questions import questions_of

    return questions_of(options.slo, options.price)


def read_step_model(options: argparse.Namespace) -> Coefficients:
    """The coefficients of --coefficients, or those that come with --model; UserError for an unknown model, and where the two disagree."""
    from predict.serving.coefficients import chosen_coefficients

    return chosen_coefficients(options.model or "", options.coefficients)
