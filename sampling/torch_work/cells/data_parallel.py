"""Data parallelism in torch: the last backward of layers under DDP, and the step of ZeroRedundancyOptimizer."""

import torch
from torch.nn.parallel import DistributedDataParallel

from sampling.cells.data_parallel import GradientCell, ShardedAdamW
from sampling.torch_work.build import builds, products_in
from sampling.torch_work.cells.layer import make_layer, random_hidden
from sampling.torch_work.module_workload import ModuleWorkload
from sampling.torch_work.operators.optimizer import parameter_list
from sampling.torch_work.workload import StepWorkload


@builds(GradientCell)
def gradient_cell(call: GradientCell, device: torch.device) -> ModuleWorkload:
    layers = torch.nn.Sequential(*(make_layer(call, device) for _ in range(call.layers)))
    return ModuleWorkload(
        [DistributedDataParallel(layers)],
        lambda: random_hidden(call, device),
        keeps_graph=False,
        context=products_in(call.dtype),
    )


@builds(ShardedAdamW)
def sharded_adamw(call: ShardedAdamW, device: torch.device) -> StepWorkload:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    weights = parameter_list(device, call.dtype, call.parameters, call.tensors)
    return StepWorkload(ZeroRedundancyOptimizer(weights, optimizer_class=torch.optim.AdamW, fused=True).step)
