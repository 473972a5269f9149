"""The load that a server can carry: its completions per second while requests always wait."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from predict.serving.kv_cache import BlockPool
from predict.serving.scheduler.recorded import in_closed_loop
from predict.serving.scheduler.simulate import serve
from predict.serving.scheduler.traffic import Load, Traffic, traffic_of
from predict.serving.server import EngineSettings
from predict.serving.step_table import StepTable
from sampling.units import SECOND_US

ROUNDS = 6
"""Times that every place of the engine is filled, at least; the first and the last do not count."""


def capacity_per_s(
    engine: EngineSettings, pool: BlockPool, table: StepTable, load: Load, recorded: Traffic | None = None
) -> float:
    """Requests per second that are done while the queue is never empty, of a load or of recorded requests, all of which count: a higher rate
    makes the queue grow without end."""
    full = 2 * engine.max_num_seqs
    rounds = max(ROUNDS, ceil(len(recorded or ()) / engine.max_num_seqs) + 2)
    count = (rounds + 3) * engine.max_num_seqs
    if recorded is None:
        traffic = traffic_of(replace(load, rate=0.0, concurrency=full, requests=count))
    else:
        traffic = in_closed_loop(recorded, full, count)
    served = serve(engine, pool, table, traffic)
    ends = np.sort(served.last_us)
    # the loop starts with answers that are cut short; whole rounds after these, by the mean of neighbouring ends
    first, last = full + engine.max_num_seqs, full + (rounds - 1) * engine.max_num_seqs
    half = max(1, engine.max_num_seqs // 2)
    early, late = ends[first - half : first + half].mean(), ends[last - half : last + half].mean()
    return float((last - first) / (late - early) * SECOND_US)
