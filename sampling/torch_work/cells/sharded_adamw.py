"""ZeRO-1's optimizer step by torch's ZeroRedundancyOptimizer."""

from __future__ import annotations

import torch

from sampling.cells.sharded_adamw import ShardedAdamW
from sampling.torch_work.build import builds
from sampling.torch_work.operators.optimizer import parameter_list
from sampling.torch_work.workload import StepWorkload


@builds(ShardedAdamW)
def sharded_adamw(call: ShardedAdamW, device: torch.device) -> StepWorkload:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    weights = parameter_list(device, call.dtype, call.parameters, call.tensors)
    return StepWorkload(ZeroRedundancyOptimizer(weights, optimizer_class=torch.optim.AdamW, fused=True).step)
