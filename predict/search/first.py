"""The first answer: a plan that fits, found in a second by trying those that are likely to, before the search proper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predict.search.pricing.outcome import Estimate, Outcome, outcomes
from predict.search.survey import Survey

TRIES = 12
"""Plans that are estimated at most."""
LIKELY = 0.75
"""Share of the memory up to which a plan's floor makes it likely to fit."""


def first_answers(surveys: Sequence[Survey], estimate: Estimate) -> dict[tuple[int, int], Outcome]:
    """The full estimates of a few plans that are likely to fit: with the fewest microbatches' activations in memory, and the
    smallest tp · cp · pp."""
    tried: dict[tuple[int, int], Outcome] = {}
    for number, own in enumerate(surveys):
        space = own.space
        likely = np.flatnonzero(own.memory_floors <= LIKELY * own.capacity_bytes)
        degrees = space.column("plan.tp") * space.column("plan.cp") * space.column("plan.pp")
        recomputes = space.column("plan.recompute") != "none"
        order = np.lexsort((own.memory_floors[likely], degrees[likely], recomputes[likely]))
        for row in likely[order][:TRIES].tolist():
            (outcome,) = outcomes(estimate, space.question.base, [(row, space.settings(row))])
            tried[number, row] = outcome
            if not outcome.refusal and outcome.memory_bytes <= own.capacity_bytes:
                return tried
    return tried
