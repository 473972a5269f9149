"""The questions of --slo and --price, in every command that takes them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sampling.errors import Checks

if TYPE_CHECKING:
    from predict.serving.planning.answer import Questions


def read_questions(options: argparse.Namespace) -> Questions:
    """The objectives and the price; UserError for all of them that are none."""
    from predict.ledger.training_cost import parse_price
    from predict.serving.planning.answer import Questions
    from predict.serving.planning.objectives import parse_objectives

    price = None
    with Checks() as checks:
        with checks.one():
            objectives = parse_objectives(options.slo)
        with checks.one():
            price = parse_price(options.price) if options.price else None
    return Questions(objectives=objectives, price=price)
