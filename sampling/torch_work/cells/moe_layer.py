"""A mixture-of-experts layer in torch."""

import torch

from sampling.arithmetic.expert_rows import rows_of_groups
from sampling.arithmetic.operator import COPIES
from sampling.cells.moe_layer import MoELayer
from sampling.torch_work.build import builds, compiled, products_in
from sampling.torch_work.cells.layer import Attend, Mlp, kernel_of_attention, make_norm, random_hidden
from sampling.torch_work.kernels.grouped_product import NOTES, grouped_product, kernel_of
from sampling.torch_work.module_workload import ModuleWorkload
from sampling.torch_work.operators.experts import Experts, random_parameter
from sampling.torch_work.operators.routing import assignment, permute, route, unpermute

JOINED = " + "
"""Separator between the kernels of a layer's attention and of its experts."""


@builds(MoELayer)
def moe_layer(call: MoELayer, device: torch.device) -> ModuleWorkload:
    product = grouped_product(device, call.dtype, call.inter, call.hidden, traced=call.compiled)
    kernel = kernel_of(product, device, call.dtype)
    return ModuleWorkload(
        [make_moe_layer(call, device) for _ in range(COPIES)],
        lambda: random_hidden(call.dense, device),
        compiled=call.compiled,
        context=products_in(call.dtype),
        note=NOTES.get(kernel, ""),
        ran_kernel=JOINED.join(filter(None, (kernel_of_attention(call.dense, device), kernel))),
    )


class Mixture(torch.nn.Module):
    """Router, permutation, experts and inverse permutation of x [batch, seq, hidden].

    The router runs, but the experts of each token are drawn beforehand, since random weights would choose them almost evenly.
    """

    def __init__(self, shape: MoELayer, device: torch.device) -> None:
        super().__init__()
        self.topk = shape.topk
        self.router = random_parameter(device, "fp32", shape.experts, shape.hidden)
        self.experts = Experts(
            shape.experts,
            shape.hidden,
            shape.inter,
            gated=shape.gated,
            dtype=shape.dtype,
            device=device,
            traced=shape.compiled,
        )
        rows = rows_of_groups(shape.tokens * shape.topk, shape.experts, shape.distribution)
        self.chosen = assignment(rows, shape.topk, device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, _ = route(tokens, self.router, self.topk)
        counts = torch.histc(self.chosen.float(), bins=len(self.router), min=0, max=len(self.router))
        rows, order = permute(tokens, self.chosen)
        made = self.experts(rows, counts.cumsum(0).to(torch.int32))
        return unpermute(made, weights, order).view_as(x)


class MoELayerModule(torch.nn.Module):
    """Pre-norm decoder layer whose MLP is a mixture, with a shared expert if the shape has one."""

    def __init__(self, shape: MoELayer, device: torch.device) -> None:
        super().__init__()
        dense = shape.dense
        self.attention_norm = make_norm(shape.norm, shape.hidden, shape.dtype, device)
        self.attend = Attend(dense, device)
        self.mlp_norm = make_norm(shape.norm, shape.hidden, shape.dtype, device)
        self.mixture = Mixture(shape, device)
        self.shared = Mlp(dense, device) if shape.shared_inter else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.attention_norm(x))
        normed = self.mlp_norm(x)
        mixed = self.mixture(normed)
        if self.shared is not None:
            mixed = mixed + self.shared(normed)
        y: torch.Tensor = x + mixed
        return y


def make_moe_layer(shape: MoELayer, device: torch.device) -> torch.nn.Module:
    layer = MoELayerModule(shape, device)
    return compiled(layer) if shape.compiled else layer
