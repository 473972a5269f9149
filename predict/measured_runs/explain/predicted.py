"""The predicted ledger in the headings of a trace, and the time of each call."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from predict.ledger.compute import StepItem, step_items
from predict.measured_runs.explain.naming import direction, heading_of
from predict.rank.exchanges import FSDP
from predict.step.breakdown import BUBBLE, DP, GLUE, HOST, OTHER, OVERHEAD, STRAGGLERS
from predict.step.prediction import Prediction
from regressors.bank.times import Source
from sampling.call import Call
from sampling.collectives.kinds import Collective

DOUBTS: Mapping[Source | None, float] = {"measured": 0.1, "extrapolated": 0.2}
"""Standard deviation in log time of what a source shows: operators of unseen shapes are 11 % off; beyond the samples, assumed."""
GUESSED = 0.4
"""Standard deviation for all other sources: passes of a device that was not sampled lie within a factor of two (at 90 %)."""
GUESSED_SHARE = 0.2
"""Share of a heading's time from which on it counts as guessed: a backward that no sample covers may be off tenfold."""
ROUNDING = 1e-9
"""Share of a step below which the rest of a sum is rounding."""
SAME: Mapping[str, str] = {FSDP: DP, GLUE: HOST, OTHER: HOST, OVERHEAD: HOST}
"""Headings of a prediction that a trace has under another name: what lies between operators is the host's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedStep:
    """µs by heading, which add up to the prediction, and by call and direction; the messages' own times by heading."""

    step_us: float
    headings: Mapping[str, float]
    calls: Mapping[tuple[Call, str], tuple[float, float]]
    """Call and direction → (runs, µs) a step of the mean rank."""
    messages_us: Mapping[str, float]
    deviations_log: Mapping[str, float]
    """Heading → standard deviation of its time's logarithm, by where its items' times come from."""
    wire_bytes: Mapping[str, float] = field(default_factory=dict)
    """Heading → bytes that a rank puts on its link for the heading's collectives."""
    guessed: frozenset[str] = frozenset()
    """Headings that are, to a good part, operators of sampled wholes that no sample covers by themselves."""
    transferred: bool = False
    """Most of the time is another device's."""


def predicted_step(prediction: Prediction, pipeline_ranks: Collection[int] | None = None) -> PredictedStep:
    """The ledger of a prediction on the mean of some pipeline ranks, by default all; what no item explains is the pipeline's bubble."""
    headings: dict[str, float] = defaultdict(float)
    calls: dict[tuple[Call, str], tuple[float, float]] = {}
    messages: dict[str, float] = defaultdict(float)
    variances: dict[str, float] = defaultdict(float)
    guessed: dict[str, float] = defaultdict(float)
    wire_bytes: dict[str, float] = defaultdict(float)
    for each in step_items(prediction, pipeline_ranks):
        heading = name_of(each)
        headings[heading] += each.time_us
        known = None if each.item.guessed else each.item.source
        variances[heading] += each.time_us * DOUBTS.get(known, GUESSED) ** 2
        guessed[heading] += each.time_us * each.item.guessed
        if each.is_message:
            messages[heading] += each.alone_us
            wire_bytes[heading] += (
                each.calls * each.item.call.bytes_on_wire() if isinstance(each.item.call, Collective) else 0.0
            )
        elif each.item.call is not None and each.item.phase is not None:
            key = each.item.call, direction(each.item.phase)
            runs, time_us = calls.get(key, (0.0, 0.0))
            calls[key] = runs + each.calls, time_us + each.time_us
    deviations_log = {
        name: math.sqrt(max(0.0, variances[name]) / time_us) for name, time_us in headings.items() if time_us > 0
    }
    for name in (STRAGGLERS, OVERHEAD):
        if time_us := prediction.breakdown_us.get(name, 0.0):
            headings[SAME.get(name, name)] += time_us
    rest_us = prediction.median_us - sum(headings.values())
    rest_us = 0.0 if abs(rest_us) < ROUNDING * prediction.median_us else rest_us
    if prediction.run.plan.pp > 1:
        headings[BUBBLE] += rest_us
    else:
        headings[HOST] += rest_us
    return PredictedStep(
        step_us=prediction.median_us,
        headings=dict(headings),
        calls=calls,
        messages_us=dict(messages),
        deviations_log=deviations_log,
        wire_bytes=dict(wire_bytes),
        guessed=frozenset(name for name, time_us in guessed.items() if time_us > GUESSED_SHARE * headings[name]),
        transferred=prediction.sources["transferred"] > 0.5,
    )


def name_of(each: StepItem) -> str:
    """The heading of a step's item: its operator's, whatever block it stands in."""
    call = each.item.call
    if call is None or isinstance(call, Collective) or each.item.beside:
        return SAME.get(each.item.heading, each.item.heading)
    return heading_of(call)
