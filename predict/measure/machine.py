"""Whether this machine is one that a run can be benchmarked on."""

from __future__ import annotations

import os

from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import detect_hardware, most_ranks


def require_hardware(run: TrainingRun, gpus: int) -> str:
    """The catalogue's name of this machine's device, if it is the run's."""
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
        raise UserError(f"--gpus: {gpus}, but this machine has {most} to time on; give {most} or less")
    threads = min(gpus, run.cluster.gpus_per_node) * wanted.threads
    cores = os.cpu_count() or 1
    if threads > cores:
        raise UserError(
            f"cluster.cores: {threads} threads of ranks that have {wanted.threads} each, and this machine has {cores} cores; "
            f"give fewer --gpus, or set cluster.cores to {run.cluster.gpus_per_node * (cores // gpus)}"
        )
    return hardware
