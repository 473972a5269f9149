"""Generation that interrupts responses when new weights come, which then go on under these (partial rollout): from sync to sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from predict.serving.batch import Floats
from predict.serving.kv_cache import BlockPool
from predict.serving.scheduler.simulate import Served, serve
from predict.serving.scheduler.traffic import Ints, Traffic
from predict.serving.server import EngineSettings
from predict.serving.step_table import StepTable

FILLING, MEASURED = 3, 3
"""Steps until responses are at every stage of theirs when new weights come, and those whose times are averaged."""
ROUNDING = 1e-9
COLUMNS = ("prompt", "output", "shared", "group")
"""Columns of traffic apart from arrivals."""


def steps_needed(ahead: float) -> int:
    """Steps of responses that an engine is given."""
    return FILLING + MEASURED + ceil(ahead)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steady:
    """Generation in the steady state."""

    of_step_us: float
    """µs in which an engine ends the responses of one step."""
    served: Served
    """Its responses from the last sync on, served to their ends as if no other sync came."""
    ends_us: Floats
    """Ends of the responses that the last step waited for, ascending."""


def steady(engine: EngineSettings, pool: BlockPool, table: StepTable, stream: Traffic, ahead: float) -> Steady:
    """The steps of an engine that is given the responses of `steps_needed` steps, 1 + `ahead` of them at once.

    A step ends when as many responses have ended as it has; those that are not done go on in the next one, their cache
    computed again from their tokens, as it was of the old weights.
    """
    of_step = len(stream) / steps_needed(ahead)  # a fraction where engines do not divide the responses
    found: list[Steady] = []
    unfinished: Traffic | None = None
    given = ended = 0
    for step in range(FILLING + MEASURED):
        before, given = given, max(given, _whole((step + 1 + ahead) * of_step))
        unfinished = _together(unfinished, _chosen(stream, np.arange(before, given)))
        needed = _whole((step + 1) * of_step) - ended
        if needed <= 0 or unfinished is None:
            continue  # they ended together with those of the step before
        served = serve(engine, pool, table, unfinished)
        ends_us = np.sort(served.last_us)[:needed]
        ended += int((served.last_us <= ends_us[-1]).sum())
        unfinished = _interrupted(served, float(ends_us[-1]))
        measured_us = float(ends_us[-1]) if step >= FILLING else 0.0
        found.append(Steady(of_step_us=measured_us, served=served, ends_us=ends_us))
    return replace(found[-1], of_step_us=sum(one.of_step_us for one in found) / MEASURED)


def _whole(count: float) -> int:
    """Whole responses, of which `count` are a part."""
    return ceil(count - ROUNDING)


def _chosen(traffic: Traffic, places: Ints) -> Traffic | None:
    """The requests at these places, all there at the start; None for no place."""
    return _at_once({name: getattr(traffic, name)[places] for name in COLUMNS}) if len(places) else None


def _together(first: Traffic | None, second: Traffic | None) -> Traffic | None:
    """Requests of both, the first before the others."""
    if first is None or second is None:
        return first or second
    return _at_once({name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in COLUMNS})


def _at_once(columns: Mapping[str, Ints]) -> Traffic:
    return Traffic(
        arrival_us=np.zeros(len(columns["prompt"])),
        prompt=columns["prompt"],
        output=columns["output"],
        shared=columns["shared"],
        group=columns["group"],
    )


def _interrupted(served: Served, at_us: float) -> Traffic | None:
    """The requests that have not ended at a time, with the tokens that they have made among those of their prompts."""
    late = np.flatnonzero(served.last_us > at_us)
    rest = _chosen(served.traffic, late)
    if rest is None:
        return None
    first, last = served.first_us[late], served.last_us[late]
    share = np.clip((at_us - first) / np.maximum(last - first, ROUNDING), 0.0, 1.0)
    made = np.where(first > at_us, 0, np.minimum(1 + share * (rest.output - 1), rest.output - 1)).astype(np.int64)
    return replace(rest, prompt=rest.prompt + made, output=rest.output - made)
