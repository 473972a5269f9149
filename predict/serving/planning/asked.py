"""Questions on a server from the texts that commands and callers give."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from predict.ledger.training_cost import parse_price
from predict.serving.planning.answer import Questions
from predict.serving.planning.objectives import parse_objectives
from sampling.errors import Checks, UserError


def questions_of(
    slo: Sequence[str] = (), price: str | None = None, *, rates: Sequence[float] = (), find_capacity: bool = False
) -> Questions:
    """The questions; UserError with a line for each text that is none, and for a rate that is not above 0 and finite."""
    paid = None
    with Checks() as checks:
        with checks.one():
            objectives = parse_objectives(slo)
        with checks.one():
            paid = parse_price(price) if price else None
        with checks.one():
            if wrong := [rate for rate in rates if not (rate > 0 and isfinite(rate))]:
                raise UserError(f"rates: {wrong[0]:g} is not a rate; give requests per second above 0 and finite")
    return Questions(
        objectives=objectives,
        price=paid,
        rates=tuple(rates),
        capacity=find_capacity,
        slow_first_tokens=find_capacity,
    )
