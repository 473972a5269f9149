"""What is asked of servers beside their latencies, from the options that several commands take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from predict.serving.planning.answer import Questions


def questions(
    options: argparse.Namespace,
    *,
    rates: tuple[float, ...] = (),
    capacity: bool = False,
    slow_first_tokens: bool = False,
) -> Questions:
    """The questions of --slo and --price, with others that a command has. UserError for each that is none, all of them at once."""
    from predict.ledger.training_cost import parse_price
    from predict.serving.planning.answer import Questions
    from predict.serving.planning.objectives import parse_objectives
    from sampling.errors import UserError

    read: dict[str, Any] = {}
    faults = []
    for name, value, parse in (("objectives", options.slo, parse_objectives), ("price", options.price, parse_price)):
        if not value:
            continue
        try:
            read[name] = parse(value)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return Questions(**read, rates=rates, capacity=capacity, slow_first_tokens=slow_first_tokens)
