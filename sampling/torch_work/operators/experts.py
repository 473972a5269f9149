"""A mixture's experts in torch: grouped products, and the MLPs that they make up."""

import torch
from torch.nn import functional

from sampling.arithmetic.expert_rows import rows_of_groups
from sampling.operators.experts import ExpertMLP, GroupedGemm
from sampling.torch_work.build import builds, products_in, torch_dtype
from sampling.torch_work.kernels.grouped_product import NOTES, grouped_product, kernel_of, row_offsets
from sampling.torch_work.workload import AutogradWorkload, Copy, autograd_workload, leaf, refuse_named_kernel


@builds(GroupedGemm)
def grouped_gemm(call: GroupedGemm, device: torch.device) -> AutogradWorkload:
    refuse_named_kernel(call.NAME, call.kernel)
    offsets = row_offsets(rows_of_groups(call.rows, call.groups, call.distribution), device)
    product = grouped_product(device, call.dtype, call.n, call.k)
    kernel = kernel_of(product, device, call.dtype)
    return autograd_workload(
        device,
        call.dtype,
        lambda x, weight: product(x, weight, offsets),
        inputs=[(call.rows, call.k)],
        weights=[(call.groups, call.n, call.k)],
        note=NOTES.get(kernel, ""),
        ran_kernel=kernel,
    )


@builds(ExpertMLP)
def expert_mlp(call: ExpertMLP, device: torch.device) -> AutogradWorkload:
    refuse_named_kernel(call.NAME, call.kernel)
    offsets = row_offsets(rows_of_groups(call.rows, call.groups, call.distribution), device)

    def copy() -> Copy:
        experts = Experts(call.groups, call.hidden, call.width, gated=call.gated, dtype=call.dtype, device=device)
        x = leaf(device, call.dtype, call.rows, call.hidden)
        return Copy(forward=lambda: experts(x, offsets), inputs=[x], weights=list(experts.parameters()))

    kernel = kernel_of(grouped_product(device, call.dtype, call.width, call.hidden), device, call.dtype)
    return AutogradWorkload(copy, context=products_in(call.dtype), note=NOTES.get(kernel, ""), ran_kernel=kernel)


class Experts(torch.nn.Module):
    """MLPs over the rows of x [rows, hidden], sorted by expert; `offsets` [groups] says where each expert's rows end."""

    def __init__(
        self,
        groups: int,
        hidden: int,
        width: int,
        *,
        gated: bool,
        dtype: str,
        device: torch.device,
        traced: bool = False,
    ) -> None:
        super().__init__()
        self.gated = gated
        up = width * (2 if gated else 1)
        self.up = random_parameter(device, dtype, groups, up, hidden)
        self.down = random_parameter(device, dtype, groups, hidden, width)
        self.product = grouped_product(device, dtype, width, hidden, traced=traced)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        wide = self.product(x, self.up, offsets)
        if self.gated:
            gate, up = wide.chunk(2, dim=-1)
            return self.product(functional.silu(gate) * up, self.down, offsets)
        return self.product(functional.gelu(wide), self.down, offsets)


def random_parameter(device: torch.device, dtype: str, *shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape, device=device, dtype=torch_dtype(dtype)).mul_(0.02))
