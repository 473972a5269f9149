"""The process of a real server: builds the model of a config, runs a job and writes what it took.

`steps` times batches of its own choice; `load` serves the requests of the config after one round of such
steps, which tell the machine's pace at the time.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from predict.measurement.serving.clock import Clock
from predict.measurement.serving.engine import RealServer, prompts_of
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.sampled_steps import sampled_steps, warm_up
from predict.measurement.serving.scheduler import Scheduler
from predict.serving.config import ServingRun, load_serving
from predict.serving.kv_cache import cache_room
from predict.serving.scheduler.traffic import traffic_of
from sampling.ranks.launch import die_with_launcher, leave
from sampling.torch_work.build import torch_dtype

JOBS = ("steps", "load")


def run_job(run: ServingRun, job: str) -> dict[str, Any]:
    """Times of the job, as plain data."""
    server = run.server
    blocks = cache_room(server).blocks
    model = ServedModel(
        server.model,
        blocks=blocks,
        block=server.engine.block_size,
        positions=server.model.max_positions,
        dtype=torch_dtype(server.placement.precision),
    )
    with torch.inference_mode():
        warm_up(model, server.engine, blocks)
        if job == "steps":
            return {"steps": [asdict(step) for step in sampled_steps(model, server.engine, blocks)]}
        before = sampled_steps(model, server.engine, blocks, visits=1)
        traffic = run.traffic or traffic_of(run.load)
        scheduler = Scheduler(server.engine, blocks)
        served = RealServer(model, scheduler, Clock()).serve(traffic, prompts_of(traffic, server.model.vocab))
    return {**asdict(served), "before": [asdict(step) for step in before]}


@record
def main() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="serving config")
    parser.add_argument("overrides", help="settings over it, a JSON list")
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("result", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    run = load_serving(arguments.config, json.loads(arguments.overrides))
    arguments.result.write_text(json.dumps(run_job(run, arguments.job)))
    leave()


if __name__ == "__main__":
    main()
