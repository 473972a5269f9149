"""The load that a server can carry: its completions per second while requests always wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predict.serving.kv_cache import BlockPool
from predict.serving.scheduler.simulate import serve
from predict.serving.scheduler.traffic import Load, traffic_of
from predict.serving.server import EngineSettings
from predict.serving.step_table import StepTable
from sampling.units import SECOND_US

ROUNDS = 6
"""Times that every place of the engine is filled; the first and the last do not count."""


def capacity_per_s(engine: EngineSettings, pool: BlockPool, table: StepTable, load: Load) -> float:
    """Requests per second that are done while the queue is never empty: a higher rate makes the queue grow without end."""
    full = 2 * engine.max_num_seqs
    overload = replace(load, rate=0.0, concurrency=full, requests=(ROUNDS + 3) * engine.max_num_seqs)
    served = serve(engine, pool, table, traffic_of(overload))
    ends = np.sort(served.last_us)
    # the loop starts with answers that are cut short; whole rounds after these, by the mean of neighbouring ends
    first, last = full + engine.max_num_seqs, full + (ROUNDS - 1) * engine.max_num_seqs
    half = max(1, engine.max_num_seqs // 2)
    early, late = ends[first - half : first + half].mean(), ends[last - half : last + half].mean()
    return float((last - first) / (late - early) * SECOND_US)
