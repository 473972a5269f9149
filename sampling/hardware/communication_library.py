"""The communication library of this machine and its settings: provenance of collectives."""

from __future__ import annotations

import os
from typing import Any

from sampling.hardware.cluster import hardware_facts

PREFIXES = ("NCCL_", "RCCL_", "GLOO_", "UCX_", "FI_", "HSA_", "CUDA_DEVICE_MAX_CONNECTIONS")
"""Prefixes of environment variables that configure communication."""


def communication_facts(hardware: str) -> dict[str, Any]:
    """The library with its version, and the environment variables that configure it."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}
    return {"library": _library(hardware), "variables": variables}


def _library(hardware: str) -> str:
    if hardware_facts(hardware).kind == "cpu":
        return "gloo"
    import torch

    version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return f"{'rccl' if torch.version.hip else 'nccl'} {version}"
