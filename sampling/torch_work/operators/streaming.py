"""Dropout and plain passes over memory in torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.streaming import Dropout, Stream
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(Dropout)
def dropout(call: Dropout, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, lambda x: functional.dropout(x, 0.1), inputs=[(call.count,)])


@builds(Stream)
def stream(call: Stream, device: torch.device) -> AutogradWorkload:
    elements = max(1, call.size_bytes // (2 * call.item_bytes))
    return autograd_workload(device, call.dtype, lambda x: x * 1.5, inputs=[(elements,)])
