"""RMSNorm and LayerNorm in torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.norm import LayerNorm, RMSNorm
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(RMSNorm)
def rms_norm(call: RMSNorm, device: torch.device) -> AutogradWorkload:
    width = (call.hidden,)
    apply = lambda x, weight: functional.rms_norm(x, width, weight, 1e-5)  # noqa: E731
    return autograd_workload(device, call.dtype, apply, inputs=[(call.tokens, call.hidden)], weights=[width])


@builds(LayerNorm)
def layer_norm(call: LayerNorm, device: torch.device) -> AutogradWorkload:
    width = (call.hidden,)
    apply = lambda x, weight, bias: functional.layer_norm(x, width, weight, bias)  # noqa: E731
    return autograd_workload(device, call.dtype, apply, inputs=[(call.tokens, call.hidden)], weights=[width, width])
