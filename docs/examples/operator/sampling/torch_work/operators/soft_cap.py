"""Soft cap of scores in torch."""

from __future__ import annotations

import torch

from sampling.operators.soft_cap import SoftCap
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload

LIMIT = 30.0


@builds(SoftCap)
def soft_cap(call: SoftCap, device: torch.device) -> AutogradWorkload:
    return autograd_workload(
        device, call.dtype, lambda x: LIMIT * torch.tanh(x / LIMIT), inputs=[(call.tokens, call.width)]
    )
