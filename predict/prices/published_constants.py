"""Constants that were read off published training runs: value, bounds, source, and what each moves.

Samples of the device come before them wherever there are any.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedConstant:
    """A factor or a share, without unit, and the bounds that its source leaves it."""

    value: float
    low: float
    high: float
    source: str
    moves: str
    """The times that it changes."""


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
    source="MPT of head sizes 112 and 128 beside 64 on A100, llm-foundry's benchmarks; flash_attn_triton.py names the cause: "
    "registers of the backward spill",
    moves="the backward of attention in Triton with heads larger than 64",
)
YOUNG_SOFTWARE = PublishedConstant(
    value=0.01,
    low=0.0,
    high=0.02,
    source="NVIDIA's dense recipes from container 25.09 to 26.06: 16 % faster on GB200, within 4 % on H100",
    moves="all kernels of a young architecture, in log time for each month until its software is settled",
)
LEARNT = "`predict validate published --widths`"
DENSE_STEP = PublishedConstant(
    value=0.125,
    low=0.105,
    high=0.125,
    source=f"{LEARNT}: what contains 90 % of dense 16-bit runs on A100 and H100; bounds: learnt with one source left out",
    moves="the interval of every step without samples of whole steps: half-width in log time at 90 %",
)
MIXTURE_STEP = PublishedConstant(
    value=0.31,
    low=0.2,
    high=0.31,
    source=f"{LEARNT}: 0.23 on all sources; the greatest learnt with one left out, since few publish mixtures",
    moves="the interval of a mixture of experts, in quadrature: half-width in log time at 90 %",
)
UNSTATED_RECIPE = PublishedConstant(
    value=0.6,
    low=0.45,
    high=0.91,
    source=f"{LEARNT}: 0.9 where sources weigh alike, for one whose recipe was another one; 0.54 contains 90 % of configurations",
    moves="the interval of a published mixture whose recipe is left open (recomputation or overlap, and with them dispatcher and "
    "graphs), in quadrature: half-width in log time at 90 %",
)
