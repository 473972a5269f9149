"""The GPU of this machine, and whether it is the one that a run names."""

from __future__ import annotations

from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import detect_hardware, entry_of

NO_GPU = (
    "torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU, with a torch build for it, or predict and "
    "measure this machine's CPU with cluster.hardware: cpu"
)


def device_name() -> str:
    """The name that torch gives this machine's first GPU, "" without one. UserError without torch."""
    require_library("torch")
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def hardware_at_hand() -> str:
    """The hardware file of this machine's GPU. UserError without a GPU, SamplesError for one that no file describes."""
    if not device_name():
        raise UserError(
            f"this-gpu: {NO_GPU}; `predict validate this-machine` holds predictions against steps on the CPU, and "
            "`predict validate this-gpu --profile NAME` against those that GPU sessions brought to the profile"
        )
    return detect_hardware()


def require_gpu_of(run: TrainingRun) -> None:
    """UserError unless this machine has the run's GPU; one that no hardware file names is taken for what the run says."""
    name = device_name()
    if not name:
        raise UserError(f"cluster.hardware: {run.cluster.gpu.name}: {NO_GPU}")
    entry = entry_of(name)
    if entry and hardware_facts(entry).name != run.cluster.gpu.name:
        raise UserError(
            f"cluster.hardware: {run.cluster.gpu.name}, but this machine has a {name}; use --set cluster.hardware={entry}"
        )
