"""Dequantisation in torch's operators: codes become values by a table of all bytes, each block times its scale."""

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from sampling.operators.dequantise import FP8_BLOCK, NF4_BLOCK, NF4_SCALES, Dequantise
from sampling.torch_work.build import builds, torch_dtype
from sampling.torch_work.workload import AutogradWorkload, Copy

NORMAL_FLOATS = (
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
)  # fmt: skip
"""The sixteen values of NF4 (Dettmers et al., arXiv 2305.14314, appendix E)."""
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The sixteen values of FP4 (OCP Microscaling Formats 1.0, table 5)."""
MX_BLOCK, MX_BIAS = 32, 127
Widen = Callable[[], torch.Tensor]


@builds(Dequantise)
def dequantise(call: Dequantise, device: torch.device) -> AutogradWorkload:
    return AutogradWorkload(lambda: Copy(forward=MADE[call.stored](call, device)))


def _of_pairs(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The two values [256, 2] of each byte, the first in its upper half."""
    table = torch.tensor(values, device=device, dtype=dtype)
    codes = torch.arange(256, device=device)
    return torch.stack((table[codes >> 4], table[codes & 15]), dim=-1)


def _codes(blocks: int, width: int, device: torch.device) -> torch.Tensor:
    """Random bytes [blocks, width / 2], each two codes."""
    return torch.randint(0, 256, (blocks, width // 2), dtype=torch.uint8, device=device)


def _blocks(call: Dequantise, width: int) -> int:
    return max(1, call.count // width)


def _normal_floats(call: Dequantise, device: torch.device) -> Widen:
    dtype, blocks = torch_dtype(call.dtype), _blocks(call, NF4_BLOCK)
    pairs, codes = _of_pairs(NORMAL_FLOATS, dtype, device), _codes(blocks, NF4_BLOCK, device)
    scales = torch.rand(blocks, 1, device=device)
    return lambda: functional.embedding(codes.int(), pairs).view(blocks, NF4_BLOCK) * scales.to(dtype)


def _double(call: Dequantise, device: torch.device) -> Widen:
    dtype = torch_dtype(call.dtype)
    groups = max(1, call.count // (NF4_BLOCK * NF4_SCALES))
    blocks = groups * NF4_SCALES
    pairs, codes = _of_pairs(NORMAL_FLOATS, dtype, device), _codes(blocks, NF4_BLOCK, device)
    small = torch.randint(-127, 128, (groups, NF4_SCALES), dtype=torch.int8, device=device)
    scales, mean = torch.rand(groups, 1, device=device), torch.rand((), device=device)

    def widen() -> torch.Tensor:
        own = (small * scales + mean).view(blocks, 1).to(dtype)
        return functional.embedding(codes.int(), pairs).view(blocks, NF4_BLOCK) * own

    return widen


def _fp8(call: Dequantise, device: torch.device) -> Widen:
    dtype, blocks = torch_dtype(call.dtype), _blocks(call, FP8_BLOCK**2)
    values = torch.randn(blocks, FP8_BLOCK**2, device=device).to(torch.float8_e4m3fn)
    scales = torch.rand(blocks, 1, device=device)
    return lambda: values.to(dtype) * scales.to(dtype)


def _mxfp4(call: Dequantise, device: torch.device) -> Widen:
    dtype, blocks = torch_dtype(call.dtype), _blocks(call, MX_BLOCK)
    pairs, codes = _of_pairs(E2M1, dtype, device), _codes(blocks, MX_BLOCK, device)
    exponents = torch.randint(MX_BIAS - 8, MX_BIAS + 8, (blocks, 1), dtype=torch.uint8, device=device)

    def widen() -> torch.Tensor:
        scales = torch.exp2(exponents.to(torch.float32) - MX_BIAS).to(dtype)
        return functional.embedding(codes.int(), pairs).view(blocks, MX_BLOCK) * scales

    return widen


MADE: Mapping[str, Callable[[Dequantise, torch.device], Widen]] = {
    "nf4": _normal_floats,
    "nf4_double": _double,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
}
