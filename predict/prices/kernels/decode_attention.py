"""Attention over a cache: the bytes of keys and values at a share of the bandwidth, after a start."""

from __future__ import annotations

from predict.prices.kernels.formulas import formula_of
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.decode_attention import UNPACKED, DecodeAttention

START_US = {"hopper": 12.5, "ampere": 18.0}
START_ELSEWHERE = 11.0
"""Start of the kernel and of the one that joins the parts of long caches: the time of AIConfigurator's smallest caches (vLLM 0.14;
H100, A100, L40S). The shares are those of its largest; median errors of 1 to 512 sequences of 128 to 32k keys are 7 to 13 %."""
MEMORY_SHARE = {"hopper": 0.92, "ampere": 0.76}
MEMORY_SHARE_ELSEWHERE = 0.84
WIDTH = 0.35
"""Log half-width at 90 % on those tables, whose kernels fill the multiprocessors in waves."""
COMPUTE_SHARE = 0.65
"""Share of the peak, which binds latent attention alone, whose many heads read the same keys: 660 TFLOP/s of the 989 of an H800 (README
of github.com/deepseek-ai/FlashMLA)."""
PACKING = ("hopper", "blackwell")
"""Architectures on which serving engines read keys once for all heads that share them: FlashAttention 3 and later. On others vLLM
takes FlashAttention 2."""
CACHE_BYTES_PER_US = 2.5e6
"""Bandwidth of the last-level cache at which heads that share keys read them one by one: Qwen3-14B, Llama-3.1-8B and Mixtral-8x7B on A100
under vLLM V1 agree within 3 % (the step's growth per request over what the weights and the host leave). Ada's cache is taken for as fast."""


COMPUTED_IN = "bf16"
"""Dtype of the products, whatever that of the cache."""


@formula_of(DecodeAttention)
def decode_attention_us(call: DecodeAttention, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    share = MEMORY_SHARE.get(gpu.architecture, MEMORY_SHARE_ELSEWHERE)
    start_us = START_US.get(gpu.architecture, START_ELSEWHERE)
    us = call.bytes_moved(phase) / (share * gpu.bytes_per_us())
    if call.kernel == UNPACKED:
        by_each_head = 2 * call.item_bytes * call.batch * call.heads * call.seen * call.head_dim
        us = max(us, by_each_head / CACHE_BYTES_PER_US)
    compute_us = call.flops(phase) / (COMPUTE_SHARE * gpu.peak_flops_per_us(COMPUTED_IN))
    return start_us + max(us, compute_us), WIDTH
