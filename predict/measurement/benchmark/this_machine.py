"""Whether this machine can benchmark a run, and how a benchmark describes the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import kinds_without_module
from sampling.errors import UserError
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import detect_hardware, identify, most_ranks, provenance

Tell = Callable[[str], None]


def require_hardware(run: TrainingRun, gpus: int, option: str = "--gpus") -> str:
    """The catalogue's name of this machine's device. UserError unless it is the run's, with room for `gpus` ranks, which
    `option` gave."""
    hardware = detect_hardware()
    device = hardware_facts(hardware).name
    wanted = run.cluster.gpu
    if device != wanted.name:
        raise UserError(
            f"cluster.hardware: the run is on {wanted.name}, this machine has {device}; benchmark on a machine of the run's "
            f"hardware, or time this one with --set cluster.hardware={hardware}"
        )
    most = most_ranks(hardware)
    if gpus > most:
        raise UserError(f"{option}: {gpus}, but this machine has {most} to time on; give {most} or less")
    threads = min(gpus, run.cluster.gpus_per_node) * wanted.threads
    cores = os.cpu_count() or 1
    if threads > cores:
        raise UserError(
            f"cluster.cores: {threads} threads of ranks that have {wanted.threads} each, and this machine has {cores} cores; "
            f"give a smaller {option}, or set cluster.cores to {run.cluster.gpus_per_node * (cores // gpus)}"
        )
    return hardware


def require_modules(run: TrainingRun, *, tell: Tell, otherwise: str) -> None:
    """UserError for a model without any whole-layer module. Each kind of layer without one is reported through `tell`,
    with what is done instead (`otherwise`)."""
    missing = kinds_without_module(run)
    for kind in missing:
        tell(f"{kind}: no whole-layer module stands for these layers; {otherwise}")
    if len(missing) == len(set(run.model.kinds())):
        raise UserError(
            f"model: {run.model.name} has no layer kind that can be run whole; predict it without a benchmark"
        )


def origin(hardware: str) -> dict[str, Any]:
    """The provenance of a benchmark taken here and now."""
    return {
        "identity": identify(hardware),
        "hardware": hardware,
        "framework": "torch",
        "date": time.strftime("%Y-%m-%d"),
        **provenance(),
    }
