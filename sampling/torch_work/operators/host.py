"""Copies to the host and back, and AdamW on its cores, in torch."""

import torch

from sampling.operators.host import HostAdamW, HostCopy
from sampling.torch_work.build import builds, torch_dtype
from sampling.torch_work.operators.optimizer import parameter_list
from sampling.torch_work.workload import AutogradWorkload, Copy, StepWorkload


@builds(HostCopy)
def host_copy(call: HostCopy, device: torch.device) -> AutogradWorkload:
    """A copy between a device and its host's memory, on a CPU within its own. Disks are not timed: a file's pages would stay in memory."""
    elements = max(1, call.size_bytes // call.item_bytes)
    pins = device.type != "cpu"

    def make() -> Copy:
        on_device = torch.ones(elements, dtype=torch_dtype(call.dtype), device=device)
        on_host = torch.ones(elements, dtype=torch_dtype(call.dtype), pin_memory=pins)
        target, source = (on_host, on_device) if call.to_host else (on_device, on_host)
        return Copy(forward=lambda: target.copy_(source, non_blocking=True))

    return AutogradWorkload(make)


@builds(HostAdamW)
def host_adamw(call: HostAdamW, device: torch.device) -> StepWorkload:
    """An AdamW step of one tensor in the host's memory, on as many threads as torch has."""
    weights = parameter_list(torch.device("cpu"), "fp32", call.parameters, tensors=1)
    return StepWorkload(torch.optim.AdamW(weights, fused=True).step)
