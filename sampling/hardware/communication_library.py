"""What carries communication on this machine, and what steers it: provenance of collectives."""

from __future__ import annotations

import os
from typing import Any

from sampling.hardware.cluster import hardware_facts

STEERING = ("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "HSA_", "CUDA_DEVICE_MAX_CONNECTIONS")
"""Variables that steer communication begin with one of these."""


def communication_facts(hardware: str) -> dict[str, Any]:
    """The library with its version, and the variables that are set for it."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(STEERING)}
    return {"library": _library(hardware), "variables": variables}


def _library(hardware: str) -> str:
    if hardware_facts(hardware).kind == "cpu":
        return "gloo"
    import torch

    version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return f"{'rccl' if torch.version.hip else 'nccl'} {version}"
