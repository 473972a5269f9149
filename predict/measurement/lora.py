"""LoRA in plain torch, as peft arranges it: linear layers that stay as they are, each with two small ones beside it that are trained."""

import torch
from torch import Tensor, nn

from predict.measurement.decoder import Block, Decoder, initialise
from predict.model.spec import LayerKind, ModelSpec
from predict.run.adapters import Adapters, Part


class LowRank(nn.Module):
    """x·Wᵀ + (alpha / rank)·x·Aᵀ·Bᵀ of a frozen linear layer W (Hu et al., arXiv 2106.09685, section 4.1); B starts at zero."""

    def __init__(self, base: nn.Linear, adapters: Adapters) -> None:
        super().__init__()
        self.base, self.scale = base, adapters.alpha / adapters.rank
        self.a = nn.Linear(base.in_features, adapters.rank, bias=False, dtype=base.weight.dtype).apply(initialise)
        self.b = nn.Linear(adapters.rank, base.out_features, bias=False, dtype=base.weight.dtype)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.base(x), self.b(self.a(x)), alpha=self.scale)


def with_adapters(decoder: Decoder, spec: ModelSpec, adapters: Adapters) -> None:
    """Freeze a whole model in place, and put adapters on the matrices of its layers that have one."""
    decoder.requires_grad_(False)
    for layer, kind in zip(decoder.layers, spec.kinds(), strict=True):
        assert isinstance(layer, Block)
        _adapt(layer.attention, spec, kind, adapters, "attention")
        _adapt(layer.mlp, spec, kind, adapters, "mlp")


def _adapt(module: nn.Module | None, spec: ModelSpec, kind: LayerKind, adapters: Adapters, part: Part) -> None:
    """Adapters of one part of a layer, whose linear layers have the matrices' names: q of q_proj, up of up_proj, …"""
    shape = spec.mixer(kind) if part == "attention" else spec.feed_forward(kind)
    for matrix in shape.matrices(spec) if module is not None else ():
        if adapters.cover(matrix, part):
            name = matrix.name.removesuffix("_proj")
            base = getattr(module, name)
            setattr(module, name, LowRank(base, adapters))
