"""The first plans of a search, run for real on this machine."""

from __future__ import annotations

from dataclasses import replace

from predict.cli.options import log
from predict.plan_search.answer.ranking import Answer
from sampling.errors import UserError

ROUNDS = 3
"""Turns in which plans are measured, so that a slow spell of the machine falls on all alike."""


def measured(answer: Answer, count: int) -> Answer:
    """The answer with the measured steps of its first plans."""
    from predict.measure.real_step import measure_interleaved
    from predict.measure.requirements import require_measurable

    runs, refusals = {}, []
    for place, plan in enumerate(answer.plans, 1):
        run = replace(plan.prediction.run, name=f"plan {place}")
        try:
            require_measurable(run, "torch")
        except UserError as error:
            refusals.append(str(error))
            continue
        runs[place] = run
        if len(runs) == count:
            break
    for refusal in refusals:
        log(f"left out: {refusal}")
    if not runs:  # what the search found is worth more than a refusal
        return answer
    results = measure_interleaved(
        [(run, "torch") for run in runs.values()], rounds=ROUNDS, steps_per_round=None, progress=log
    )
    medians = {place: result.median_us for place, result in zip(runs, results, strict=True) if result}
    return replace(answer, measured_us=tuple(medians.get(place) for place in range(1, max(runs) + 1)))
