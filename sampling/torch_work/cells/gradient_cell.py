"""Layers under torch's DistributedDataParallel."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from sampling.cells.gradient_cell import GradientCell
from sampling.torch_work.build import builds, products_in
from sampling.torch_work.cells.layer import make_layer, random_hidden
from sampling.torch_work.module_workload import ModuleWorkload


@builds(GradientCell)
def gradient_cell(call: GradientCell, device: torch.device) -> ModuleWorkload:
    layers = torch.nn.Sequential(*(make_layer(call, device) for _ in range(call.layers)))
    return ModuleWorkload(
        [DistributedDataParallel(layers)],
        lambda: random_hidden(call, device),
        keeps_graph=False,
        context=products_in(call.dtype),
    )
