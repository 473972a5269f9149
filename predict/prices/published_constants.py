"""Constants that were read off published training runs: value, bounds, source, and what each moves.

Samples of the device come before them wherever there are any. Figures of one framework or device stay in its file, which
`place` names; the list has them too, so that every such figure is found here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal["global", "kernel", "framework", "interval"]
"""The reach of a constant: `global` moves the median of all frameworks' runs of a precision or an architecture, `interval` only widths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedConstant:
    """A factor or a share, without unit, and the bounds that its source leaves it."""

    value: float
    low: float
    high: float
    source: str
    moves: str
    """The times that it changes."""
    scope: Scope = "kernel"
    place: str = ""
    """The file that holds the value, and the key or name in it, where that is not this module."""


TRITON_AMPERE = PublishedConstant(
    value=1.4,
    low=1.3,
    high=1.5,
    source="MPT of head size 64 on A100, llm-foundry's benchmarks, 2k to 64k tokens",
    moves="attention in Triton on Ampere, over FlashAttention-2",
)
TRITON_HOPPER = PublishedConstant(
    value=2.1,
    low=1.9,
    high=2.3,
    source="MPT on H100, llm-foundry's benchmarks, 2k to 64k tokens",
    moves="attention in Triton on Hopper, over FlashAttention-3; Blackwell by analogy: Triton used neither one's instructions",
)
TRITON_LARGE_HEAD_BACKWARD = PublishedConstant(
    value=1.4,
    low=1.3,
    high=1.55,
    source="MPT of head sizes 112 and 128 against 64 on A100, llm-foundry's benchmarks; flash_attn_triton.py names the cause: "
    "registers of the backward spill",
    moves="the backward of attention in Triton with heads larger than 64",
)
YOUNG_SOFTWARE = PublishedConstant(
    value=0.015,
    low=0.011,
    high=0.0165,
    source="`predict validate published --leave-out`; bounds: the least learnt with one source left out, and NVIDIA's dense recipes "
    "from container 25.09 to 26.06, 16 % faster on GB200, within 4 % on H100",
    moves="all kernels of a young architecture, in log time for each month until its software is settled",
    scope="global",
)
SETTLED_MONTHS = PublishedConstant(
    value=16,
    low=10,
    high=22,
    source="the newest container compared, 26.06, is of that age, so that no older software can show more; bounds assumed",
    moves="months from an architecture's first GPUs in clouds until its software is settled",
)
FP8_EXPERT_KERNELS = PublishedConstant(
    value=6,
    low=2,
    high=8,
    source="quantising by rows and by columns, arranging the scales of both operands, padding of rows, and the product (Transformer "
    "Engine, module/grouped_linear.py, csrc/extensions/gemm.cpp); that none hides behind another, from H100 runs; bounds assumed",
    moves="kernels per expert of an fp8 product outside of a whole step's graph, in which one kernel quantises the rows of all",
)
LEARNT = "`predict validate published --widths`"
DENSE_STEP = PublishedConstant(
    value=0.095,
    low=0.06,
    high=0.125,
    source=f"{LEARNT}: 0.06 is what the median framework needs on A100 and H100, 0.075 at most with one source left out; wider, since those "
    "cover 89 % of complete dense runs of a source left out, and for frameworks without runs; upper bound: what covers all frameworks",
    moves="the interval of every step without samples of whole steps: half-width in log time at 90 %",
    scope="interval",
)
MIXTURE_STEP = PublishedConstant(
    value=0.29,
    low=0.275,
    high=0.31,
    source=f"{LEARNT}: 0.275 on all sources, 0.28 at most with one left out; wider, since one publisher has most of the rows",
    moves="the interval of a mixture of experts, in quadrature: half-width in log time at 90 %",
    scope="interval",
)
ADAPTED_STEP = PublishedConstant(
    value=0.25,
    low=0.1,
    high=0.45,
    source="published runs of adapters: NVIDIA's recipes of 70B and MLPerf Training v5.1's are within 0.15, those of prime-rl within 0.45; in "
    "between, assumed",
    moves="the interval of a run that trains adapters, in quadrature: half-width in log time at 90 %",
    scope="interval",
)
UNSTATED_RECIPE = PublishedConstant(
    value=0.6,
    low=0.45,
    high=0.91,
    source=f"{LEARNT}: 0.9 where sources weigh alike, for one whose recipe was another one; 0.54 contains 90 % of configurations",
    moves="the interval of a published mixture whose recipe is left open (recomputation or overlap, and with them dispatcher and "
    "graphs), in quadrature: half-width in log time at 90 %",
    scope="interval",
)
STRAGGLERS = PublishedConstant(
    value=0.006,
    low=0.003,
    high=0.01,
    source="published runs of one configuration at several sizes; bounds assumed",
    moves="the step, by this share for each doubling of the ranks",
    scope="global",
)
REPLICA_CONTENTION = PublishedConstant(
    value=0.3,
    low=0.1,
    high=0.6,
    source="MLPerf Training v5.1, Llama-3.1-8B on 8 to 512 GPUs, whose one microbatch has as much communication between replicas as it "
    "can hide: 0.3 to 0.5; mixtures and dense models of other sources agree with 0.1 to 0.5 alike; upper bound: FSDP's (Lee et al., "
    "arXiv 2507.03114)",
    moves="what a hidden reduction of gradients, or gathering of weights, between replicas costs the work beside it, as a share of its time",
    scope="global",
)
EAGER = PublishedConstant(
    value=1.35,
    low=1.05,
    high=1.65,
    source="whole published runs with and without fused kernels: 1.35 ± 0.3",
    moves="elementwise kernels of eager frameworks, over fused ones",
    scope="global",
)
FP8_SHARE = PublishedConstant(
    value=0.77,
    low=0.72,
    high=0.87,
    source="0.67 of 1979 and 0.87 of 989 TFLOP/s on Hopper, with which the products of whole runs reach the average of 0.625 that published "
    "runs imply; AIConfigurator's serving kernels reach 0.72 without their quantisation pass; upper bound assumed",
    moves="products in fp8: their best share of the peak over that of bf16; on Blackwell 1.08 of it (FP8_OVER_HOPPER in products.py)",
    scope="global",
)
FP4_SHARE = PublishedConstant(
    value=0.77,
    low=0.7,
    high=0.86,
    source="fp8's share, since cuBLAS multiplies NVFP4 up to 2.3 times as fast as fp8 (NVIDIA, Boosting Matrix Multiplication Speed and "
    "Flexibility with cuBLAS 12.9, 2025); Megatron-Bridge's runs with it are 4 % fast and MLPerf Training v5.1's 8 % slow; bounds: what "
    "either source alone asks for",
    moves="products in four bits: their best share of the peak over that of bf16, without bringing their operands to four bits",
)
SUSTAINED_WIDTH = PublishedConstant(
    value=0.05,
    low=0.03,
    high=0.08,
    source="bf16 products in published H100 runs take 1.12 ± 0.05 of what short measurements do; bounds assumed",
    moves="the interval of products: half-width of sustained over burst time",
    scope="interval",
)
ROWWISE_FP8 = PublishedConstant(
    value=1.35,
    low=1.22,
    high=1.5,
    source="torchtitan's runs with rowwise against tensorwise scaling on H100",
    moves="products in fp8 scaled by rows, over those scaled by tensors",
)
FA2_HOPPER = PublishedConstant(
    value=1.7,
    low=1.5,
    high=1.9,
    source="published H100 runs with FlashAttention-2 against the best kernel; bounds assumed",
    moves="attention of FlashAttention-2 on Hopper, over FlashAttention-3",
)
FA2_BLACKWELL = PublishedConstant(
    value=2.6,
    low=2.1,
    high=2.9,
    source="by instructions: FlashAttention-2 multiplies with mma.sync, which a multiprocessor of Blackwell runs at Hopper's rate per clock; "
    "so FlashAttention-2 gains over an H100 the multiprocessors and the clock alone, 148 · 1.965 over 132 · 1.755 GHz (CUDA device "
    "properties), where the best kernel gains 0.53 · 2250 over 0.625 · 989 TFLOP/s (b200.yml, h100-sxm.yml)",
    moves="attention of FlashAttention-2 on Blackwell, over cuDNN's",
)
ATTENTION_BACKWARD_HOPPER = PublishedConstant(
    value=3.2,
    low=2.9,
    high=3.7,
    source="published H100 runs: 3.3 ± 0.4, taken to be at 4k tokens",
    moves="the backward of attention on Hopper, over its forward on long sequences",
)
LAUNCH_FLOOR_WIDTH = PublishedConstant(
    value=0.15,
    low=0.09,
    high=0.18,
    source="1.0 to 1.3 ms about 1.1 in published stacks",
    moves="the interval of the host's launch floor, as a share of it",
    scope="interval",
)
PLAN_SETTING = PublishedConstant(
    value=0.075,
    low=0.07,
    high=0.24,
    source="three sources of published runs that differ in the plan alone and were timed as whole steps: nine tenths of their ratios need "
    "0.07, 0.075 and 0.24 per differing setting, this at the median (`predict validate ranking --widths`); with steps added up from "
    "timed cells as a fourth it would be 0.115",
    moves="the interval of the ratio of two plans, for each setting in which they differ, in quadrature",
    scope="interval",
)
PIPELINED_TP = PublishedConstant(
    value=0.55,
    low=0.35,
    high=0.8,
    source="torchtitan with and without asynchronous tensor parallelism on H100: 35 to 80 %",
    moves="the largest hidden share of a collective that moves piece by piece during its product",
    scope="framework",
    place="predict/rank/exchanges.py: PIPELINED_MOST",
)
LAUNCH_FLOOR_2021 = PublishedConstant(
    value=1100,
    low=1000,
    high=1300,
    source="published runs of that time take 1.0 to 1.3 ms per layer and phase, however small the layer",
    moves="µs of a layer and phase at least, in Megatron-LM of 2021 and its kin",
    scope="framework",
    place="configs/frameworks/megatron-2021.yml: execution.launch_floor_us",
)
EXPERT_LAUNCH = PublishedConstant(
    value=2400,
    low=1800,
    high=3000,
    source="published runs on H100 without graphs: 8.3 to 9.7 ms a mixture layer and microbatch, whatever its plan, within 0.25",
    moves="µs of a mixture layer's launches without graphs, in Megatron-Core and its kin",
    scope="framework",
    place="configs/frameworks/megatron-core.yml: execution.expert_launch_us",
)
PRIME_RL_STEP = PublishedConstant(
    value=250000,
    low=200000,
    high=350000,
    source="published fine-tuning of 0.6B and 4B on 1 and 8 GPUs: what a step takes beyond its layers, at 8k and at 16k tokens alike",
    moves="µs of a step of prime-rl's trainer beside its layers",
    scope="framework",
    place="configs/frameworks/prime-rl.yml: execution.step_overhead_us",
)
BLACKWELL_PRODUCTS = PublishedConstant(
    value=0.77,
    low=0.69,
    high=0.85,
    source="H200's share of its peak, which published Blackwell runs confirm within 1.11",
    moves="products on Blackwell in NVIDIA's tuned stack: best share of the peak",
    scope="framework",
    place="configs/frameworks/nemo.yml: by_architecture.blackwell.gemm_efficiency",
)
SUSTAINED_HOPPER = PublishedConstant(
    value=1.12,
    low=1.07,
    high=1.17,
    source="bf16 runs on H100: products of a long run take 1.12 ± 0.05 of what short measurements do",
    moves="16-bit products of long runs on Hopper",
    scope="global",
    place="configs/hardware/h100-sxm.yml: sustained.bf16",
)
SUSTAINED_BLACKWELL = PublishedConstant(
    value=1.11,
    low=1.05,
    high=1.17,
    source="bf16 runs on Blackwell take 1.11 of what samples of the generation before imply; bounds as on Hopper",
    moves="16-bit products of long runs on Blackwell, by the power of the board",
    scope="global",
    place="configs/hardware/b200.yml: sustained.bf16",
)
SUSTAINED_MI350X = PublishedConstant(
    value=1.12,
    low=1.0,
    high=1.2,
    source="MLPerf Training v5.1, Llama-3.1-8B in fp8: 1.23 of the time of an MI355X, of the same chip at 1,400 W, whose peak is 1.09; bounds assumed",
    moves="products of long runs on MI350X, by the power of the board",
    place="configs/hardware/mi350x.yml: sustained.bf16",
)
SUSTAINED_500_W = PublishedConstant(
    value=1.4,
    low=1.3,
    high=1.5,
    source="bf16 runs at 500 W: products take about 1.4 of what short measurements at 700 W do; bounds assumed",
    moves="16-bit products of long runs on H100 boards of 96 GB",
    place="configs/hardware/h100-96gb.yml: sustained.bf16",
)
TORCHTITAN_SPREAD = PublishedConstant(
    value=0.145,
    low=0.135,
    high=0.16,
    source=f"{LEARNT}, less what DENSE_STEP has beyond; bounds: learnt with one source left out",
    moves="the interval of torchtitan and its kin, in quadrature: half-width in log time at 90 %",
    scope="interval",
    place="configs/frameworks/torchtitan.yml: spread",
)
MEGATRON_2021_SPREAD = PublishedConstant(
    value=0.13,
    low=0.12,
    high=0.185,
    source=f"{LEARNT}, less what DENSE_STEP has beyond; bounds: learnt with one source left out",
    moves="the interval of Megatron-LM of 2021 and its kin, in quadrature: half-width in log time at 90 %",
    scope="interval",
    place="configs/frameworks/megatron-2021.yml: spread",
)


def published_constants() -> dict[str, PublishedConstant]:
    """Name → constant, all of them in the order of this file."""
    return {name: value for name, value in globals().items() if isinstance(value, PublishedConstant)}
