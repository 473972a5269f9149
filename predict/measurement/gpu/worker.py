"""The process that owns the GPU: it builds a run, trains it for a span of time, and writes what it saw as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from predict.layers.run_json import load_run
from predict.measurement.gpu.clock_and_power import watched
from predict.measurement.gpu.timed_steps import TIMED, WARM_UP, Span, Stepper
from predict.measurement.gpu.training import INDUCTOR, build_training
from predict.measurement.models.mixture import busiest_expert
from predict.measurement.training_step import Training, random_batch
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.hardware.readings import read_device
from sampling.hardware.this_device import cpu_name
from sampling.ranks.launch import die_with_launcher

REFUSED = 3
"""Exit code of a run that cannot be trained here, for which the reason is printed."""


def train(
    run: TrainingRun, device: torch.device, *, warm_up: Span, timed: Span, compiler: str = INDUCTOR
) -> dict[str, Any]:
    """Train the run and return times, losses, memory, clock and power, in the shape that `predict.measurement.real_step` reads."""
    training, products = build_training(run, device, compiler=compiler)
    stepper = Stepper(step=lambda: _started(training), wait=_waiter(device), now_s=time.perf_counter)
    warm = stepper.run(warm_up)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    with watched(_uuid(device), lambda: read_device(device)) as readings:
        steps = stepper.run(timed)
    reading = readings.mean()
    return {
        "wall_s": [step.wall_s for step in steps],
        "losses": [step.loss for step in (*warm, *steps)],
        "parameters": training.parameters,
        "versions": _versions(),
        "device": {
            "name": torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
            "clock_mhz": reading.clock_mhz,
            "power_w": reading.power_w,
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(device) if on_gpu else None,
            "attention": run.execution.attention,
            "expert_products": products,
            "busiest_expert": _busiest_expert(run, training, device),
        },
    }


def _busiest_expert(run: TrainingRun, training: Training, device: torch.device) -> float | None:
    tokens = random_batch(run, replica=0)[0][: run.batch.micro].to(device)
    # the hooks that count are no part of what was compiled
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return busiest_expert(training.module, lambda: training.module(tokens))


def _started(training: Training) -> Callable[[], float]:
    """Start a step; the function returned reads its loss."""
    loss = training.step()
    assert loss is not None
    return lambda: float(loss.item())


def _waiter(device: torch.device) -> Callable[[], None]:
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def _uuid(device: torch.device) -> str:
    """The GPU's id as nvidia-smi takes it, which no list of visible devices renumbers."""
    if device.type != "cuda":
        return "none"
    return f"GPU-{getattr(torch.cuda.get_device_properties(device), 'uuid', 'unknown')}"


def _versions() -> dict[str, str]:
    runtime = torch.version.cuda or torch.version.hip
    return {"torch": torch.__version__, **({"cuda" if torch.version.cuda else "rocm": runtime} if runtime else {})}


def main() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run as predict.layers.run_json writes it")
    parser.add_argument("result", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="cuda", help="torch's name of the device (default: %(default)s)")
    parser.add_argument("--steps", type=int, help=f"steps to time (default: as many as fill {TIMED.seconds:g} s)")
    options = parser.parse_args()
    timed = Span(seconds=0.0, steps=options.steps) if options.steps else TIMED
    try:
        device = torch.device(options.device)
        result = train(load_run(options.run.read_text()), device, warm_up=WARM_UP, timed=timed)
    except (UserError, torch.cuda.OutOfMemoryError) as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
    options.result.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
