"""Steps of a real run recorded by torch's profiler, one trace per rank, for `predict explain`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from predict.measurement.requirements import trace_name
from predict.measurement.training_step import Training
from sampling.importers.torch_trace.events import FACTS

TRACED_STEPS = 3


def trace_steps(
    training: Training, folder: Path, facts: Mapping[str, Any], *, steps: int = TRACED_STEPS
) -> list[float]:
    """Record `steps` steps after one that warms the profiler up, and write them to `rank<n>.json.gz` in `folder`.

    Every rank of the process group must call it together. Returns the wall time of each recorded step in s, from barrier to
    barrier, by a clock that is not the profiler's.
    """
    path = folder / trace_name(dist.get_rank())
    wall_s: list[float] = []
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda record: record.export_chrome_trace(str(path)),
    ) as record:
        for step in range(steps + 1):
            if step == steps:
                record.add_metadata_json(FACTS, json.dumps(facts))
            dist.barrier()
            start = time.perf_counter()
            training.step()
            dist.barrier()
            wall_s.append(time.perf_counter() - start)
            record.step()
    return wall_s[1:]
