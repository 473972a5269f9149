"""A serving config run for real on this machine: its requests served by a small engine in torch, in a process of its own,
or in one for prompts and one for answers."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from predict.measurement.requirements import require_servable
from predict.measurement.worker import run_in_processes
from predict.prices.open import open_prices
from predict.prices.pace import paces_beside
from predict.serving.batch import Chunk, StepBatch
from predict.serving.coefficients import Client
from predict.serving.config import ServingRun
from predict.serving.fit_own_server import TimedBatch
from predict.serving.kernels import EXECUTION
from predict.serving.latency import Latency, latency_of
from predict.serving.simulate import Served
from predict.serving.token_gaps import TokenGaps
from predict.serving.traffic import traffic_of
from sampling.files.disk import scratch_folder
from sampling.store.pace import Resource

TIMEOUT_S = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedLoad:
    """A load as a real server bore it."""

    name: str
    latency: Latency
    requests: int
    steps: int
    preemptions: int
    waited_s: float
    """Seconds in which other processes had the core, which no time contains, but with two pools."""
    before: Sequence[TimedBatch]
    """Steps of chosen batches just before the load, which show the machine's pace at the time."""
    accepted_shares: Sequence[float]
    """Share of the decodes' drafts of which those up to each position were accepted; empty without drafts."""
    paces: Mapping[Resource, float]
    """The machine's pace just before and just after the load, by resource, as a share of that of the profile's rows; empty where they do
    not know theirs."""


def serve_for_real(run: ServingRun, config: Path | str, overrides: Sequence[str] = ()) -> ServedLoad:
    """Serve the load of a config. UserError for one that cannot be run here, before anything starts, and for a server that fails."""
    require_servable(run)
    cluster = run.server.cluster
    found = _run(run, config, overrides, "load")
    times = {name: np.array(found[f"{name}_us"]) for name in ("arrival", "start", "first", "last")}
    traffic = replace(run.traffic or traffic_of(run.load), arrival_us=times["arrival"])
    computed = float(sum(tokens for step in found["steps"] for tokens, _ in step["chunks"]))
    durations = np.array([step["end_us"] - step["start_us"] for step in found["steps"]])
    sizes = np.array([len(step["chunks"]) + len(step["decodes"]) for step in found["steps"]])
    served = Served(
        traffic=traffic,
        start_us=times["start"],
        first_us=times["first"],
        last_us=times["last"],
        trace=np.zeros((0, 0)),
        steps=len(durations),
        busy_us=float(durations.sum()),
        mean_requests=float((sizes * durations).sum() / durations.sum()),
        mean_blocks=0.0,
        most_blocks=0,
        preemptions=found["preemptions"],
        chunk_tokens=computed,
        found_tokens=max(0.0, float(traffic.prompt.sum()) - computed),
        gaps=TokenGaps.of_steps(durations, np.array([float(len(step["decodes"])) for step in found["steps"]])),
    )
    return ServedLoad(
        name=run.name,
        latency=latency_of(served, Client()),
        requests=len(times["last"]),
        steps=served.steps,
        preemptions=served.preemptions,
        waited_s=found["waited_s"],
        before=_timed_batches(found["before"]),
        accepted_shares=[
            float(np.mean(np.array(found["accepted"]) > place)) for place in range(run.server.speculation.drafts)
        ],
        # beside idle neighbours no session read the pace
        paces=paces_beside(open_prices(cluster, EXECUTION), cluster, found["references"]["time_us"])
        if cluster.world_size == 1
        else {},
    )


def time_steps(run: ServingRun, config: Path | str, overrides: Sequence[str] = ()) -> list[TimedBatch]:
    """Steps of the config's server with batches that do not depend on its load. UserError as of `serve_for_real`."""
    require_servable(run)
    return _timed_batches(_run(run, config, overrides, "steps")["steps"])


def _timed_batches(steps: Sequence[Any]) -> list[TimedBatch]:
    return [
        TimedBatch(
            batch=StepBatch(
                chunks=tuple(Chunk(tokens=tokens, context=context) for tokens, context in step["chunks"]),
                decodes=tuple(step["decodes"]),
            ),
            time_us=step["end_us"] - step["start_us"],
        )
        for step in steps
    ]


def _run(run: ServingRun, config: Path | str, overrides: Sequence[str], job: str) -> Any:
    apart = job == "load" and run.prefill is not None
    with scratch_folder("pools") as folder:
        pipe = folder / "kept" if apart else None
        if pipe:
            os.mkfifo(pipe)
        return run_in_processes(
            "serving",
            {"config": str(config), "overrides": list(overrides), "job": job, "pipe": str(pipe or "")},
            name=run.name,
            processes=1 + apart,
            threads=run.server.cluster.threads,
            timeout_s=TIMEOUT_S,
        )
