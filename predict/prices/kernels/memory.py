"""Operators whose time is their traffic: bytes over a share of the device's streaming bandwidth, and a start a kernel.

`efficiency.elementwise` of a device is what a plain stream such as a residual addition reaches; each operator has a share
of that, by `Operator.bytes_moved`. From Estimating training time: "bytes of one tensor over time" in GB/s, forward and
backward, on the A100 (of 2039; a residual 0.83) and the GH200 (of 4000; a residual 0.885).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.optimizer import AdamW, GradientScale
from sampling.operators.routing import Router

START_US = 3.0
"""Of a kernel: 1–11 µs of the linear fits to those samples, the smaller ones on the GH200."""
MEASURED = 0.35
"""Log half-width at 90 % where both GPUs were measured: their shares differ by up to 1.5×, and stacks by 1.35 ± 0.3."""
ONE_STACK = 0.6
"""Where the two differ by more, or one only was measured."""
BY_ANALOGY = 0.9
"""Where nothing was measured."""
ROUTER_PEAK_SHARE = 0.7
"""Of the fp32 peak, by analogy with products on tensor cores."""
TENSORS_A_LAUNCH = 36
"""Tensors that one launch of a fused optimizer takes with four lists of them (torch, MultiTensorApply.cuh)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Of streaming bandwidth, forward and backward, and how many kernels do it."""

    forward: float
    backward: float
    width: float
    source: str
    kernels: int = 1
    of_architecture: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where the samples of one architecture are of an older kernel."""

    def share(self, phase: Phase, architecture: str) -> float:
        forward, backward = self.of_architecture.get(architecture, (self.forward, self.backward))
        return backward if phase.startswith("backward") else forward


SHARES: Mapping[str, Shares] = {
    "residual_add": Shares(
        forward=1.0, backward=1.0, width=MEASURED, source="566 GB/s on the A100, 1180 on the GH200: the stream itself"
    ),
    "stream": Shares(
        forward=0.89, backward=0.89, width=MEASURED, source="adding up gradients at 1.5 TB/s in published A100 runs"
    ),
    "dropout": Shares(
        forward=0.89, backward=0.89, width=ONE_STACK, source="attention dropout at 1.5 TB/s in published A100 runs"
    ),
    "layer_norm": Shares(
        forward=0.66,
        backward=0.71,
        width=MEASURED,
        source="A100 563 and 174 GB/s (Apex, 2022), GH200 1169 and 833; both passes of the backward together",
        of_architecture={"ampere": (0.66, 0.31)},
    ),
    "rms_norm": Shares(
        forward=0.66,
        backward=0.71,
        width=ONE_STACK,
        source="as a layer norm of the GH200's kernels: the samples' own is unfused, at 33–300 GB/s",
    ),
    "gelu": Shares(
        forward=0.78, backward=0.88, width=MEASURED, source="A100 722 and 539 GB/s, GH200 1250 and 958; geometric means"
    ),
    "swiglu": Shares(
        forward=0.78, backward=0.75, width=ONE_STACK, source="as GELU, by tensors moved; two kernels where not fused"
    ),
    "rope": Shares(
        forward=0.3,
        backward=0.25,
        width=BY_ANALOGY,
        kernels=3,
        source="between a fused kernel (as GELU) and the samples' unfused one (A100 114 and 45 GB/s: about ten passes)",
    ),
    "causal_softmax": Shares(
        forward=0.69, backward=0.59, width=MEASURED, source="A100 838 and 569 GB/s, GH200 1490 and 904; geometric means"
    ),
    "softmax": Shares(
        forward=0.45, backward=0.46, width=ONE_STACK, source="A100 450 and 278 GB/s, GH200 700 and 516; geometric means"
    ),
    "mask_fill": Shares(
        forward=0.4, backward=0.088, width=ONE_STACK, source="A100 413 and 106 GB/s, GH200 727–1530 and 194"
    ),
    "embedding": Shares(
        forward=0.45,
        backward=0.5,
        width=BY_ANALOGY,
        kernels=3,
        source="between A100 172 GB/s (with masks of a parallel table) and GH200 1720; gradient: the table zeroed first",
    ),
    "cross_entropy": Shares(
        forward=0.2,
        backward=0.62,
        width=ONE_STACK,
        kernels=4,
        source="A100 127 and 421 GB/s of fp16 logits, GH200 216 and 619: unfused passes in fp32; geometric means",
    ),
    "router": Shares(
        forward=0.5, backward=0.5, width=BY_ANALOGY, kernels=6, source="by analogy: cast, product, softmax, top-k"
    ),
    "permute": Shares(
        forward=0.7,
        backward=0.4,
        width=BY_ANALOGY,
        kernels=8,
        source="by analogy: a sort, then a gather; atomic sums back",
    ),
    "unpermute": Shares(
        forward=0.35, backward=0.4, width=BY_ANALOGY, kernels=4, source="by analogy: weighting apart from atomic sums"
    ),
    "adamw": Shares(
        forward=0.83, backward=0.83, width=MEASURED, source="20 ps a parameter of 28 bytes in published A100 runs"
    ),
    "gradient_scale": Shares(forward=1.0, backward=1.0, width=MEASURED, source="as a residual addition"),
}


def memory_us(call: Operator, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    shares = SHARES[call.NAME]
    share = gpu.efficiency["elementwise"] * shares.share(phase, gpu.architecture)
    us = call.bytes_moved(phase) / (share * gpu.bytes_per_us())
    if isinstance(call, Router):
        us += call.flops(phase) / (ROUTER_PEAK_SHARE * gpu.peak_flops_per_us("fp32"))
    return us + START_US * _kernels(call, shares), shares.width


def _kernels(call: Operator, shares: Shares) -> int:
    if isinstance(call, GradientScale):
        return call.tensors
    if isinstance(call, AdamW):
        return -(-call.tensors // TENSORS_A_LAUNCH)
    return shares.kernels
