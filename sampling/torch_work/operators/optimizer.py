"""AdamW, the scaling of gradients and the copying of weights in torch."""

import torch

from sampling.operators.optimizer import AdamW, GradientScale, ParameterCopy
from sampling.torch_work.build import builds
from sampling.torch_work.collectives.tensor_parallel import as_shards
from sampling.torch_work.workload import ColdWorkload, StepWorkload, leaf


@builds(AdamW)
def adamw(call: AdamW, device: torch.device) -> StepWorkload:
    weights = parameter_list(device, call.dtype, call.parameters, call.tensors)
    if call.tp > 1:
        weights = as_shards(weights, device, call.tp)
    return StepWorkload(torch.optim.AdamW(weights, fused=True).step)


@builds(GradientScale)
def gradient_scale(call: GradientScale, device: torch.device) -> StepWorkload:
    weights = parameter_list(device, call.dtype, call.parameters, call.tensors)

    def scale() -> None:
        for weight in weights:
            assert weight.grad is not None
            weight.grad.div_(1.0001)

    return StepWorkload(scale)


@builds(ParameterCopy)
def parameter_copy(call: ParameterCopy, device: torch.device) -> ColdWorkload:
    new, old = (parameter_list(device, call.dtype, call.parameters, call.tensors) for _ in range(2))

    def copy() -> None:
        with torch.no_grad():
            for target, source in zip(old, new, strict=True):
                target.copy_(source)

    return ColdWorkload(copy, device)


def parameter_list(device: torch.device, dtype: str, parameters: int, tensors: int) -> list[torch.Tensor]:
    """Leaf tensors with gradients: a quarter as small as norm weights, the rest sharing the bulk."""
    small = [min(256, parameters // tensors)] * (tensors // 4)
    large = tensors - len(small)
    bulk, rest = divmod(parameters - sum(small), large)
    sizes = small + [bulk] * (large - 1) + [bulk + rest]
    weights = [leaf(device, dtype, size) for size in sizes]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return weights
