"""Matrix products in torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.torch_work.build import builds
from sampling.torch_work.kernels.scaled_product import fp8_products
from sampling.torch_work.precision import products_in
from sampling.torch_work.workload import (
    AutogradWorkload,
    Copy,
    PhaseWorkload,
    autograd_workload,
    leaf,
    refuse_named_kernel,
)


@builds(Gemm)
def gemm(call: Gemm, device: torch.device) -> AutogradWorkload | PhaseWorkload:
    refuse_named_kernel(call.NAME, call.kernel)
    if call.dtype == "fp8":
        return fp8_products(device, call.m, call.n, call.k)
    return autograd_workload(
        device, call.dtype, functional.linear, inputs=[(call.m, call.k)], weights=[(call.n, call.k)]
    )


@builds(BatchedGemm)
def batched_gemm(call: BatchedGemm, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        left = leaf(device, call.dtype, call.batch, call.m, call.k)
        right = leaf(device, call.dtype, call.batch, call.k, call.n)
        if not call.adds:
            return Copy(forward=lambda: torch.bmm(left, right), inputs=[left, right])
        # with beta = 0 it is never read, as attention's scores start from an empty buffer
        onto = torch.empty(call.batch, call.m, call.n, device=device, dtype=left.dtype)
        forward = lambda: torch.baddbmm(onto, left, right, beta=0.0, alpha=call.k**-0.5)  # noqa: E731
        return Copy(forward=forward, inputs=[left, right])

    return AutogradWorkload(copy, context=products_in(call.dtype))
