"""Cells spread over a tensor-parallel group by torch's DTensor styles, as in its documentation.

The tensor-parallel group is the default process group. For one rank every function returns its module unchanged.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


def _mesh(device: torch.device, tp: int) -> DeviceMesh:
    return init_device_mesh(device.type, (tp,))


def parallelize_layer(module: torch.nn.Module, device: torch.device, tp: int, sp: bool) -> torch.nn.Module:
    """Attention and MLP column-parallel at their inputs, row-parallel at their outputs; norms split along the sequence with sp."""
    if tp == 1:
        return module
    outside = Shard(1) if sp else Replicate()
    enter = PrepareModuleInput(input_layouts=(outside,), desired_input_layouts=(Replicate(),))
    plan: dict[str, ParallelStyle] = {
        "attend": enter,
        "attend.query": ColwiseParallel(),
        "attend.key": ColwiseParallel(),
        "attend.value": ColwiseParallel(),
        "attend.output": RowwiseParallel(output_layouts=outside),
        "mlp": enter,
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=outside),
    }
    if sp:
        plan |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
    return parallelize_module(module, _mesh(device, tp), plan)


def parallel_embedding(module: torch.nn.Module, device: torch.device, tp: int, sp: bool) -> torch.nn.Module:
    """The rows of the table spread over the group; the output is whole, or split along the sequence with sp."""
    if tp == 1:
        return module
    style = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1) if sp else Replicate())
    return parallelize_module(module, _mesh(device, tp), style)


def parallelize_head(module: torch.nn.Module, device: torch.device, tp: int, sp: bool) -> torch.nn.Module:
    """Logits split along the vocabulary, for the vocabulary-parallel loss."""
    if tp == 1:
        return module
    outside = Shard(1) if sp else Replicate()
    plan: dict[str, ParallelStyle] = {
        "output": ColwiseParallel(input_layouts=outside, output_layouts=Shard(-1), use_local_output=False)
    }
    if sp:
        plan["norm"] = SequenceParallel()
    return parallelize_module(module, _mesh(device, tp), plan)


def as_shards(weights: list[torch.Tensor], device: torch.device, tp: int) -> list[torch.Tensor]:
    """Leaf DTensors, with gradients; `weights` are this rank's shards of them."""
    mesh = _mesh(device, tp)
    sharded = []
    for weight in weights:
        assert weight.grad is not None
        tensor = DTensor.from_local(weight.detach(), mesh, [Shard(0)]).requires_grad_()
        tensor.grad = DTensor.from_local(weight.grad, mesh, [Shard(0)])
        sharded.append(tensor)
    return sharded


def loss_context(tp: int) -> Callable[[], AbstractContextManager[Any]]:
    return loss_parallel if tp > 1 else nullcontext
