"""The processes of a real server: one that times its steps or serves a load, or two with a pool each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.serving.engine import Arrivals, Clock, RealServer, prompts_of, sampled_steps, warm_up
from predict.measurement.serving.model import ServedModel
from predict.measurement.serving.pools import make_answers, make_prompts
from predict.measurement.serving.scheduler import Scheduler
from predict.serving.config import load_serving
from predict.serving.kv_cache import cache_room
from predict.serving.traffic import traffic_of
from sampling.torch_work.build import torch_dtype


def body(config: str, overrides: Sequence[str], job: str, pipe: str) -> dict[str, Any] | None:
    """The times of a config's server, as plain data.

    The job `steps` times batches of its own choice; `load` serves the requests of the config after one round of such steps, which show
    the machine's pace at the time. Of two pools rank 1 computes prompts and sends their keys and values through the named `pipe` to rank 0,
    which reports.
    """
    serving = load_serving(config, overrides)
    server = serving.server
    blocks = cache_room(server).blocks
    model = ServedModel(
        server.model,
        blocks=blocks,
        block=server.engine.block_size,
        positions=server.model.max_positions + server.speculation.drafts,
        dtype=torch_dtype(server.placement.precision),
    )
    with torch.inference_mode():
        warm_up(model, server.engine, blocks)
        if job == "steps":
            return {"steps": [asdict(step) for step in sampled_steps(model, server.engine, blocks)]}
        before = sampled_steps(model, server.engine, blocks, visits=1)
        traffic = serving.traffic or traffic_of(serving.load)
        prompts = prompts_of(traffic, server.model.vocab)
        scheduler = Scheduler(server.engine, blocks, server.speculation.drafts)
        if os.environ["RANK"] == "1":
            make_prompts(model, scheduler, traffic, prompts, pipe)
            return None
        reference = ReferenceTimes(server.cluster)
        reference.read()
        if pipe:
            arrival_us, served = traffic.arrival_us.tolist(), make_answers(model, scheduler, traffic, prompts, pipe)
        else:
            arrivals = Arrivals(traffic, prompts)
            arrival_us, served = (
                arrivals.arrival_us,
                RealServer(model, scheduler, Clock()).serve(arrivals, len(traffic)),
            )
        reference.read()
    return {
        **asdict(served),
        "arrival_us": arrival_us,
        "before": [asdict(step) for step in before],
        "references": asdict(reference.summary()),
    }
