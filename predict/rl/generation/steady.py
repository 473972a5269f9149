"""Generation that never waits for a tail: engines whose interrupted responses go on under new weights (partial rollout)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from predict.serving.kv_cache import BlockPool
from predict.serving.scheduler.simulate import Served, serve
from predict.serving.scheduler.traffic import Traffic
from predict.serving.server import EngineSettings
from predict.serving.step_table import StepTable

MEASURED = 2
"""Steps over which the rate is taken, once as many responses have ended as are in flight."""


def steps_needed(ahead: float) -> int:
    """Steps of responses that an engine is given: those that fill it, those measured, and those still in flight at the end."""
    return MEASURED + 2 * ceil(1 + ahead)


def steady_step(
    engine: EngineSettings, pool: BlockPool, table: StepTable, stream: Traffic, ahead: float
) -> tuple[float, Served]:
    """The µs in which an engine ends the responses of one step, and what it served; `stream` has `steps_needed` steps.

    It starts a response whenever one ends, so that those of 1 + ahead steps are in flight.
    """
    of_step = len(stream) / steps_needed(ahead)  # a fraction where engines do not divide the responses
    in_flight = min(engine.max_num_seqs, round((1 + ahead) * of_step))
    served = serve(engine, pool, table, replace(stream, in_flight=max(1, in_flight)))
    ends = np.sort(served.last_us)
    first, measured = ceil(ceil(1 + ahead) * of_step), round(MEASURED * of_step)
    rate_us = float(ends[first + measured - 1] - ends[first - 1]) / measured * of_step
    return rate_us + resumed_us(table, stream, in_flight), served


def resumed_us(table: StepTable, stream: Traffic, in_flight: int) -> float:
    """The µs in which the responses in flight at a weight sync are computed again from their tokens, as their cache was of the old weights.

    A response is met in proportion to its length, halfway on average.
    """
    lengths = stream.output.astype(np.float64)
    made = float((lengths**2).mean() / lengths.mean()) / 2
    tokens = in_flight * (float(stream.prompt.mean()) + made)
    most = table.most_tokens
    return tokens * (float(table.mixed_us[most]) / most + table.prefill_token_us)
