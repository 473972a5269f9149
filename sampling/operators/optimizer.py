"""What a step does once, over all parameters: AdamW, and the scaling of gradients after a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.operator import Operator
from sampling.call import Counted, Phase
from sampling.catalogue import register

if TYPE_CHECKING:
    import torch

    from sampling.torch_work.workload import StepWorkload

STEP: tuple[Phase, ...] = ("step",)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class AdamW(Operator):
    """Fused AdamW over `tensors` tensors of `parameters` elements in all (Loshchilov and Hutter, arXiv 1711.05101).

    Reads weight, gradient and both moments and writes all but the gradient: 7 passes. With tp > 1 the tensors are one
    rank's shards of DTensors, whose dispatch costs the host time for each.
    """

    NAME: ClassVar[str] = "adamw"
    PHASES: ClassVar[tuple[Phase, ...]] = STEP

    parameters: int
    tensors: int
    tp: int

    @property
    def group_size(self) -> int:
        return self.tp

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 7.0 * self.item_bytes * self.parameters

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=replace(self, tp=1), phase=phase),) if self.tp > 1 else ()

    def build(self, device: torch.device) -> StepWorkload:
        import torch

        from sampling.torch_work.workload import StepWorkload

        weights = parameter_list(device, self.dtype, self.parameters, self.tensors)
        if self.tp > 1:
            from sampling.torch_work.tensor_parallel import as_shards

            weights = as_shards(weights, device, self.tp)
        return StepWorkload(torch.optim.AdamW(weights, fused=True).step)


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class GradientScale(Operator):
    """Dividing every gradient by the number of microbatches, as a pipeline does at the end of its backward."""

    NAME: ClassVar[str] = "gradient_scale"
    PHASES: ClassVar[tuple[Phase, ...]] = STEP

    parameters: int
    tensors: int

    def flops(self, phase: Phase) -> float:
        return 0.0

    def bytes_moved(self, phase: Phase) -> float:
        return 2.0 * self.item_bytes * self.parameters

    def build(self, device: torch.device) -> StepWorkload:
        from sampling.torch_work.workload import StepWorkload

        weights = parameter_list(device, self.dtype, self.parameters, self.tensors)

        def scale() -> None:
            for weight in weights:
                assert weight.grad is not None
                weight.grad.div_(1.0001)

        return StepWorkload(scale)


def parameter_list(device: torch.device, dtype: str, parameters: int, tensors: int) -> list[torch.Tensor]:
    """Leaf tensors with gradients: a quarter as small as norm weights, the rest sharing the bulk."""
    import torch

    from sampling.torch_work.workload import leaf

    small = [min(256, parameters // tensors)] * (tensors // 4)
    large = tensors - len(small)
    bulk, rest = divmod(parameters - sum(small), large)
    sizes = small + [bulk] * (large - 1) + [bulk + rest]
    weights = [leaf(device, dtype, size) for size in sizes]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return weights
