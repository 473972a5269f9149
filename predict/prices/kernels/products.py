"""Matrix products: whole tiles in waves over the multiprocessors, and at least the time to move their tensors.

A wave of h×w tiles takes 2·h·w·(k + RAMP) FLOPs per multiprocessor at the device's best share of its peak; the fastest of a
few tile shapes counts (NVIDIA, Matrix Multiplication Background User's Guide, 2023, sections 3 and 4).
"""

import math
from collections.abc import Mapping, Sequence

from predict.prices.kernels.formulas import formula_of
from predict.prices.kernels.memory_bound import joined_us
from predict.prices.published_constants import CONSTANTS
from sampling.arithmetic.expert_rows import BALANCED
from sampling.call import Phase
from sampling.hardware.cluster import BLOCK_SCALED_BYTES, Gpu
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, UNTUNED, GroupedGemm
from sampling.operators.gemm import (
    FP8_BLOCK,
    INT8,
    LEAST_OUTPUT_BYTES,
    READS,
    WIDENED_BYTES,
    BatchedGemm,
    Gemm,
    bytes_of_weight,
    is_scaled,
    scaling_bytes,
)

TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64))
TILE_EDGE_COST = 0.083
"""Relative time that a tile's operand traffic adds, per 64·(1/h + 1/w) beyond the traffic of a 256×128 tile: small tiles load more
bytes per FLOP. This and the next four are one fit to AIConfigurator's bf16 GEMMs (vLLM, TensorRT-LLM, SGLang; A100, H100,
H200) and the forward linears of Estimating training time (A100, GH200): median errors 3–8 %."""
WAVE_SHARPNESS = 0.6
"""1 if a last wave costs as much as a full one, 0 if it costs its share: libraries split k and reorder tiles."""
RAMP = 140.0
"""Elements of k that take as long as filling a tile's pipeline and writing its result."""
MEMORY_SHARE = 0.86
"""Share of the stated bandwidth, if operands and result are read and written once."""
START_US = 3.7
"""Time of a kernel before its first tile and after its last."""
OVERLAP = 4.0
"""Exponent of the norm of memory and compute time, which do not overlap fully if they are similar."""

BACKWARD_SHARE = 0.97
"""Time of the backward's two products over the time of permuted forward ones: Estimating training time measures 0.92 on the A100 and 0.97
on the GH200 (linears), SimuMax's inputs' gradients 1.00 on the A100 PCIe and 1.01 on the B200; this is the mean of the four. What
adding to earlier gradients costs comes on top of it."""

WIDTH = 0.22
"""Log half-width at 90 % for products with sides of 512 or more: 0.16–0.22 by source and GPU on AIConfigurator. It includes
0.11 between burst and sustained clocks (published H100 runs)."""
SMALL_WIDTH = 0.25
"""Addition times the start's share of the time (half-widths are 0.35–0.5 for sides below 512)."""
FP8_WIDTH = 0.35
"""Addition for fp8: half-widths are 0.40–0.65 on AIConfigurator, whose kernels differ by 1.5×."""
FP4_WIDTH = 0.4
"""Addition for four bits, of whose products in training nobody published samples. Assumed: a little more than fp8's."""
BATCHED_SLOWDOWN: Mapping[str, tuple[float, float]] = {"ampere": (1.25, 1.07)}
"""Compute time of a batch of products over the compute time of one product's tiles: where the result is larger than either factor, as
scores and their gradients are, and elsewhere. Estimating training time on the A100: 1.22 to 1.30, and 1.06 to 1.08; on the GH200 1.0."""
BATCHED_WIDTH = 0.15
"""Addition for batches of products: half-widths are 0.3–0.5 on Estimating training time, whose two GPUs differ by as much."""
BLACKWELL_WIDTH = 0.2
"""Addition on Blackwell: the samples, of one stack, reach 0.485 of the bf16 peak; NVIDIA's ratios imply 0.77."""


Shape = tuple[int, int, float]
"""Rows and columns of a tile, and its FLOPs per element of k, its operands' traffic included."""


def _with_flops(tiles: Sequence[tuple[int, int]]) -> tuple[Shape, ...]:
    return tuple((h, w, 2.0 * h * w * (1 + TILE_EDGE_COST * 64 * (1 / h + 1 / w - 3 / 256))) for h, w in tiles)


SHAPES = _with_flops(TILES)
SHAPES_OF_WIDENED = _with_flops((*TILES, *((h, w) for h in (16, 32, 48) for w in (128, 256))))
"""Marlin's tiles start at the 16 rows of one tensor-core instruction (Frantar et al., MARLIN, 2024; vLLM's `thread_m_blocks`, 1
to 4), in which few rows cost their bytes alone on devices with little compute per byte too."""


@formula_of(Gemm)
def gemm_us(call: Gemm, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """y[m, n] = x[m, k]·Wᵀ; backward-input has k products [m, n]·[n, k], backward-weight [n, m]·[m, k]."""
    m, n, k, dtype = call.m, call.n, call.k, call.dtype
    if phase == "forward" and call.kernel in OF_FEWER_BITS:
        return _of_fewer_bits_us(call, gpu)
    if phase == "forward":
        us = product_us(m, n, k, 1, dtype, call.operand_bytes, gpu) + _to_fp4_us(m * k, dtype, gpu)
        return us, product_width(us, dtype, gpu)
    us = 0.0
    if phase != "backward_weight":
        us += product_us(m, k, n, 1, dtype, call.operand_bytes, gpu, BACKWARD_SHARE) + _to_fp4_us(m * n, dtype, gpu)
    if phase != "backward_input":
        us += product_us(n, k, m, 1, dtype, call.operand_bytes, gpu, BACKWARD_SHARE)
    return us, product_width(us, dtype, gpu)


WIDENED_SHARE, WIDENED_MEMORY_SHARE, WIDENED_WIDTH = 0.85, 0.90, 0.25
"""Weights of fewer bits that are widened as they are read, over 16-bit ones: compute, which Marlin's authors have 10 to 20 % below a plain
product at 128 rows and more; bandwidth, 0.29 of the time for 0.26 of the bytes at 1 to 4 rows per expert; and the addition to the log
half-width (AIConfigurator's tables of vLLM 0.14's Marlin experts on H100, 4,129 shapes: 0.29 to 0.43 of bf16's time below 16 rows per
expert, 0.89 above 256)."""
INT8_SHARE, INT8_WIDTH = 0.75, 0.30
"""Share of twice the 16-bit rate that products of int8 reach, and the addition to their width; assumed, as of fp8."""
FP8_BLOCK_SHARE, FP8_BLOCK_WIDTH = 0.81, 0.25
"""Rate of fp8 with scales by block over that of fp8 with one scale: 1.23 times the time above 1,024 rows, and up to 1.8 of few (vLLM 0.14
on H100, 4,704 shapes of AIConfigurator), where quantising the inputs costs a kernel of its own."""
OF_FEWER_BITS = (*WIDENED_BYTES, INT8, FP8_BLOCK)


def _of_fewer_bits_us(call: Gemm, gpu: Gpu) -> tuple[float, float]:
    """A product whose weights have fewer bits than its inputs had."""
    m, n, k = call.m, call.n, call.k
    weight = bytes_of_weight(call.kernel, call.operand_bytes)
    bytes_per_us = MEMORY_SHARE * gpu.bytes_per_us()
    if call.kernel in WIDENED_BYTES:
        compute_us = striped_us(m, n, k, 1, WIDENED_SHARE * best_flops_per_us(call.dtype, gpu))
        memory_us = (weight * n * k / WIDENED_MEMORY_SHARE + LEAST_OUTPUT_BYTES * m * (k + n)) / bytes_per_us
        us = START_US + overlapped_us(compute_us, memory_us)
        return us, product_width(us, call.dtype, gpu) + WIDENED_WIDTH
    if call.kernel == INT8:
        speed, width = _int8_flops_per_us(gpu), INT8_WIDTH
    else:
        speed, width = FP8_BLOCK_SHARE * best_flops_per_us(call.dtype, gpu), FP8_BLOCK_WIDTH
    # inputs are read in 16 bits, written in eight, and read by the product
    moved = weight * n * k + m * k + LEAST_OUTPUT_BYTES * m * n
    quantised_us = START_US + (LEAST_OUTPUT_BYTES + 1) * m * k / bytes_per_us
    us = START_US + overlapped_us(waves_us(m, n, k, 1, speed, gpu), moved / bytes_per_us) + quantised_us
    return us, product_width(us, call.dtype, gpu) + width


def _int8_flops_per_us(gpu: Gpu) -> float:
    return INT8_SHARE * gpu.efficiency["gemm"] * gpu.peak_flops_per_us("int8")


def _to_fp4_us(elements: int, dtype: str, gpu: Gpu) -> float:
    """Bringing inputs, or the gradients of outputs, to four bits; that of plain products in fp8 is in their share of the peak."""
    if dtype not in BLOCK_SCALED_BYTES:
        return 0.0
    return START_US * READS[dtype] + elements * scaling_bytes(dtype) / (MEMORY_SHARE * gpu.bytes_per_us())


@formula_of(BatchedGemm)
def batched_us(call: BatchedGemm, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """`batch` products [m, k]·[k, n] in one kernel; backward has the gradients of the left and of the right factor."""
    m, n, k, many, dtype, size = call.m, call.n, call.k, call.batch, call.dtype, call.item_bytes
    sides = ((m, n, k),) if phase == "forward" else ((m, k, n), (k, n, m))
    us = sum(
        product_us(*of_one, many, dtype, size, gpu, _batched_slowdown(*of_one, gpu.architecture)) for of_one in sides
    )
    return us, product_width(us, dtype, gpu) + BATCHED_WIDTH


def _batched_slowdown(rows: int, columns: int, inner: int, architecture: str) -> float:
    of_scores, of_others = BATCHED_SLOWDOWN.get(architecture, (1.0, 1.0))
    return of_scores if inner < min(rows, columns) else of_others


def product_us(
    rows: int,
    columns: int,
    inner: int,
    products: int,
    dtype: str,
    item_bytes: float,
    gpu: Gpu,
    slowdown: float = 1.0,
) -> float:
    """One kernel of `products` products [rows, inner]·[inner, columns]; `slowdown` multiplies its compute time."""
    speed = min(best_flops_per_us(dtype, gpu) / slowdown, gpu.peak_flops_per_us(dtype))
    compute_us = waves_us(rows, columns, inner, products, speed, gpu)
    operands = inner * (rows + columns)
    moved = products * (item_bytes * operands + max(2, item_bytes) * rows * columns)
    memory_us = moved / (MEMORY_SHARE * gpu.bytes_per_us())
    return START_US + overlapped_us(compute_us, memory_us)


def waves_us(
    rows: float,
    columns: int,
    inner: int,
    products: int,
    flops_per_us: float,
    gpu: Gpu,
    *,
    uneven: bool = False,
) -> float:
    """Time of all tiles with the fastest tile shape. If `uneven`, `rows` is a mean, and half a tile per product is padding."""
    multiprocessors = gpu.multiprocessors or 1
    least = math.inf
    for height, width, flops in SHAPES:
        tiles = _tiles(rows / height, columns / width, products, uneven=uneven) / multiprocessors
        waves = tiles + WAVE_SHARPNESS * (-(-tiles // 1) - tiles) if tiles > 1.0 else 1.0
        least = min(least, waves * flops)
    return least * (inner + RAMP) * multiprocessors / flops_per_us


def striped_us(
    rows: float, columns: int, inner: int, products: int, flops_per_us: float, *, uneven: bool = False
) -> float:
    """Time of all tiles of weights that are widened: Marlin cuts them along k too, into as many equal stripes as there are
    multiprocessors, so that no wave is left over."""
    least = min(
        _tiles(rows / height, columns / width, products, uneven=uneven) * flops
        for height, width, flops in SHAPES_OF_WIDENED
    )
    return least * (inner + RAMP) / flops_per_us


def _tiles(down: float, across: float, products: int, *, uneven: bool) -> float:
    return -(-across // 1) * products * (max(1.0, down + 0.5) if uneven else -(-down // 1))


def product_width(us: float, dtype: str, gpu: Gpu) -> float:
    return WIDTH + SMALL_WIDTH * START_US / us + stack_width(dtype, gpu)


def stack_width(dtype: str, gpu: Gpu) -> float:
    """Addition to the half-width for dtypes and architectures on which software stacks differ most."""
    width = FP4_WIDTH if dtype in BLOCK_SCALED_BYTES else FP8_WIDTH if dtype == "fp8" else 0.0
    return width + BLACKWELL_WIDTH if gpu.architecture == "blackwell" else width


def best_flops_per_us(dtype: str, gpu: Gpu) -> float:
    return gpu.peak_flops_per_us(dtype) * gpu.efficiency["gemm"] * share_of_wide(dtype, gpu.architecture)


FP8_OVER_HOPPER: Mapping[str, float] = {"blackwell": (0.763 / 0.776) / (0.734 / 0.803)}
"""Factor on FP8_SHARE, which is Hopper's: the best of many products reaches 0.763 of a B200's peak in fp8 and 0.776 in bf16, and of an
H200's 0.734 and 0.803 (stas00/ml-engineering, compute/accelerator, maximum achievable matmul FLOPS). Its B200, B300 and GB200 over its H100
and H200 give 1.04 to 1.12."""


def share_of_wide(dtype: str, architecture: str) -> float:
    """Best share of the dtype's peak over that of 16-bit products."""
    if dtype in BLOCK_SCALED_BYTES:
        return CONSTANTS["FP4_SHARE"].value
    return CONSTANTS["FP8_SHARE"].value * FP8_OVER_HOPPER.get(architecture, 1.0) if dtype == "fp8" else 1.0


def overlapped_us(compute_us: float, memory_us: float) -> float:
    return joined_us(compute_us, memory_us, OVERLAP)


# A product per expert on a few streams, as Transformer Engine's GroupedLinear runs them: a fixed time for each in addition to its tiles.

PER_EXPERT_SHARE, WEIGHT_SHARE = 0.95, 0.80
"""Best shares over the best share of a plain product: of products by rows, and of weight gradients, which add to fp32."""
EXPERT_US = 4.0
"""Time that each expert's product costs in addition to its tiles. This and the two shares are one fit to SimuMax's grouped products
(A100 PCIe and B200, bf16, 128 to 9,832 rows per expert): mean error 9 %, without bias."""
PER_EXPERT_WIDTH = 0.25
"""Log half-width at 90 % on those products."""


def per_expert_us(call: GroupedGemm, phase: Phase, gpu: Gpu) -> float:
    """Products of each expert's rows with its weight [n, k], after one pass that quantises the rows of all."""
    if phase == "forward":
        return _quantised_us(call, call.k, gpu) + _per_expert_rowwise_us(call, call.n, call.k, gpu)
    us = 0.0
    if phase != "backward_weight":
        us += _quantised_us(call, call.n, gpu) + _per_expert_rowwise_us(call, call.k, call.n, gpu, BACKWARD_SHARE)
    if phase != "backward_input":
        us += _per_expert_weight_gradient_us(call, gpu)
    return us


def _per_expert_rowwise_us(call: GroupedGemm, columns: int, inner: int, gpu: Gpu, slowdown: float = 1.0) -> float:
    busy = min(call.groups, call.rows)
    even = call.distribution == BALANCED
    rows = -(-call.rows // busy) if even else call.rows / busy
    speed = PER_EXPERT_SHARE * best_flops_per_us(call.dtype, gpu)
    compute_us = slowdown * waves_us(rows, columns, inner, busy, speed, gpu, uneven=not even)
    return _starts_us(call, busy) + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _per_expert_weight_gradient_us(call: GroupedGemm, gpu: Gpu) -> float:
    busy = min(call.groups, call.rows)
    speed = WEIGHT_SHARE * best_flops_per_us(call.dtype, gpu)
    compute_us = BACKWARD_SHARE * waves_us(call.n, call.k, -(-call.rows // busy), busy, speed, gpu)
    return _starts_us(call, busy) + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _starts_us(call: GroupedGemm, busy: int) -> float:
    kernels = CONSTANTS["FP8_EXPERT_KERNELS"].value if is_scaled(call.dtype) and call.kernel != IN_GRAPH else 1
    return EXPERT_US * kernels * busy


def _quantised_us(call: GroupedGemm, width: int, gpu: Gpu) -> float:
    """Scaling the inputs in forward, the outputs' gradients in backward (Transformer Engine, GroupedLinear)."""
    if not is_scaled(call.dtype):
        return 0.0
    return scaling_bytes(call.dtype) * call.rows * width / (MEMORY_SHARE * gpu.bytes_per_us())


def grouped_memory_us(call: GroupedGemm, busy: int, gpu: Gpu) -> float:
    """The time in which a grouped product's rows, and the weights of its busy experts, are moved."""
    if call.kernel in WIDENED_BYTES or call.kernel == INT8:
        weight = bytes_of_weight(call.kernel, call.operand_bytes) / WIDENED_MEMORY_SHARE
        return (call.operand_bytes * call.rows * (call.k + call.n) + weight * busy * call.n * call.k) / (
            MEMORY_SHARE * gpu.bytes_per_us()
        )
    moved = call.operand_bytes * (call.rows * (call.k + call.n) + busy * call.n * call.k)
    return moved / (MEMORY_SHARE * gpu.bytes_per_us())


# Grouped products of a mixture's experts: tiles of each expert's rows, and the weights of every expert that has rows.

GROUPED_SHARE = 0.66
"""Best share of a grouped product over the best share of a plain one: fitted to AIConfigurator's fused experts with 8 rows per
expert and more (vLLM, TensorRT-LLM; A100, H100, H200), whose permutation is assumed to be three passes over the rows."""
GROUPED_START_US = 23.0
"""Start of one grouped product, including making its list of problems. Fitted together with SHARE."""
UNTUNED_START_US = 74.0
UNTUNED_SHARE = 0.735
"""The same of a fused kernel without tiles tuned for its shape, and its share of the bandwidth: Mixtral's whole experts on H100 over 1 to
8 expert-parallel ranks (AIConfigurator, vLLM 0.14), 1,290 to 293 µs of 64 tokens."""
GROUPED_WIDTH = 0.6
"""Log half-width at 90 %: 0.5–0.7 by kernel on those tables (1.0 for TensorRT-LLM where a few experts have 1k rows or
more), 0.5 on SimuMax; whole runs differ by 1.28× between containers."""


GROUPED_RATES: Mapping[str, float] = {**dict.fromkeys(WIDENED_BYTES, 1.1), FP8_BLOCK: 1.4}
"""Rate of a grouped product whose weights have fewer bits, or scales by block, over that of the dtype it multiplies: other kernels than the
fused one of plain weights run there, and are faster, although single products of these formats are slower. vLLM 0.14 on H100
(AIConfigurator): Marlin's int4 experts take 0.81 and 0.90 of bf16's time at 64 to 256 and 256 to 1,024 rows of each (1,011 shapes), fp8 by
block, its inputs' quantising included, 0.72 and 0.68 of fp8's (2,022 shapes)."""


@formula_of(GroupedGemm)
def grouped_us(call: GroupedGemm, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    """One product per expert, of its rows and its weight [n, k]; the weight gradient is [n, rows]·[rows, k]."""
    if call.kernel == UNTUNED and phase == "forward":
        memory_us = call.bytes_moved(phase) / (UNTUNED_SHARE * gpu.bytes_per_us())
        compute_us = _compute_us(call, call.n, call.k, min(call.groups, call.rows), gpu)
        return UNTUNED_START_US + overlapped_us(compute_us, memory_us), GROUPED_WIDTH + stack_width(call.dtype, gpu)
    if call.kernel in (PER_EXPERT, IN_GRAPH):
        return per_expert_us(call, phase, gpu), PER_EXPERT_WIDTH + stack_width(call.dtype, gpu)
    busy = min(call.groups, call.rows)
    if phase == "forward":
        us = _rowwise_us(call, call.n, call.k, busy, gpu)
        return us, GROUPED_WIDTH + stack_width(call.dtype, gpu)
    us = 0.0
    if phase != "backward_weight":
        us += _rowwise_us(call, call.k, call.n, busy, gpu, BACKWARD_SHARE)
    if phase != "backward_input":
        us += _weight_gradient_us(call, busy, gpu)
    return us, GROUPED_WIDTH + stack_width(call.dtype, gpu)


def _rowwise_us(call: GroupedGemm, columns: int, inner: int, busy: int, gpu: Gpu, slowdown: float = 1.0) -> float:
    compute_us = slowdown * _compute_us(call, columns, inner, busy, gpu)
    return GROUPED_START_US + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))


def _compute_us(call: GroupedGemm, columns: int, inner: int, busy: int, gpu: Gpu) -> float:
    even = call.distribution == BALANCED
    rows = -(-call.rows // busy) if even else call.rows / busy
    rate = GROUPED_RATES.get(call.kernel, 1.0)
    best = _int8_flops_per_us(gpu) if call.kernel == INT8 else rate * best_flops_per_us(call.dtype, gpu)
    if call.kernel in WIDENED_BYTES:
        return striped_us(rows, columns, inner, busy, GROUPED_SHARE * best, uneven=not even)
    return waves_us(rows, columns, inner, busy, GROUPED_SHARE * best, gpu, uneven=not even)


def _weight_gradient_us(call: GroupedGemm, busy: int, gpu: Gpu) -> float:
    speed = GROUPED_SHARE * best_flops_per_us(call.dtype, gpu)
    rows = -(-call.rows // busy)
    compute_us = BACKWARD_SHARE * waves_us(call.n, call.k, rows, busy, speed, gpu)
    return GROUPED_START_US + overlapped_us(compute_us, grouped_memory_us(call, busy, gpu))
