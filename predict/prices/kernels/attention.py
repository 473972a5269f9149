"""Fused attention: blocks of queries, each over the keys that its mask keeps, in parallel over the multiprocessors.

A block of 128 queries takes 4·128·(d + EXPONENTIAL)·keys FLOPs of a multiprocessor at the device's best share, and a
fixed time. The longest block of a causal mask, twice the mean, is a lower bound of the kernel (Dao, FlashAttention-2, arXiv
2307.08691, section 3.2; Shah et al., FlashAttention-3, arXiv 2407.08608, section 3.2, on the cost of exponentials).
"""

from collections.abc import Mapping

from predict.prices.kernels.formulas import formula_of
from predict.prices.kernels.memory_bound import joined_us
from predict.prices.published_constants import CONSTANTS
from sampling.call import Phase
from sampling.hardware.cluster import Gpu
from sampling.operators.attention import UNPACKED, Attention, DecodeAttention
from sampling.operators.linear_attention import GatedDelta

BLOCK = 128
"""Queries, and about as many keys, in a block of the kernel, which also computes the part beyond a mask's edge."""
EXPONENTIAL = 40.0
"""Head size whose products cost as much as the exponential of a score. This and the next four are one fit to
AIConfigurator's causal attention of 512 tokens and more (vLLM and SGLang; A100, H100, H200): median errors 7–11 %."""
BLOCK_US = 1.5
MEMORY_SHARE = 0.4
"""Share of the stated bandwidth, if q, k, v and output are read and written once."""
OVERLAP = 1.4
BALANCE = 2.0
"""Exponents of the norms of memory and compute time (OVERLAP), and of mean work and longest block (BALANCE)."""
START_US = 10.0
"""Start of the kernel, including preparing its schedule."""
STATED_HEAD = 128
"""Head size for which `efficiency.attention` states the share of peak on long sequences."""

BACKWARD = {"ampere": 2.87, "blackwell": 2.9}
"""Backward over forward time on long sequences: Estimating training time on the A100 (3.01 at 4k); SimuMax on the B200
(3.0–3.3 at 32k and more). Hopper's is a published constant."""
BACKWARD_ELSEWHERE = 3.0
BACKWARD_SHORT = 215.0
"""Sequence length at which the ratio is twice that: 3.46 at 1k, 3.16 at 2k, 3.01 at 4k on the A100 samples."""
SHORTEST = 512
"""Keys below which the ratio stays: the shortest sequences of the fit. On shorter ones the start of the kernel is most of its time, and a
ratio that fell with their length would make a longer sequence the quicker one."""
BACKWARD_PRODUCTS = 2.5
"""FLOPs of backward over forward if key and value heads have the same size."""

SLOWDOWN_ELSEWHERE = {"triton": 1.5}
TRITON_HEAD = 64
"""Largest head whose backward in Triton keeps to its registers (github.com/Dao-AILab/flash-attention, flash_attn_triton.py)."""
FLASH_1 = 2.0
"""FlashAttention 1's time over FlashAttention-2's: 1.7 to 3.0 on an A100 (Dao, arXiv 2307.08691, section 4.1)."""
FLEX_FORWARD, FLEX_BACKWARD = 1 / 0.9, 1 / 0.85
"""FlexAttention's time over FlashAttention-2's (PyTorch, FlexAttention: The Flexibility of PyTorch with the Performance of
FlashAttention, 2024: 90 % of its speed forward and 85 % backward, on an A100)."""
FLASH_2 = ("fa2", "flash", "flash_attn", "efficient")
"""Names of kernels of FlashAttention-2's generation: torch's flash and efficient backends, and the package flash_attn."""

BEST = {"ampere": "FlashAttention-2", "hopper": "FlashAttention-3 or cuDNN", "blackwell": "cuDNN"}
IN_WORDS = {
    "fa1": "FlashAttention 1",
    "fa2": "FlashAttention-2",
    "fa3": "FlashAttention-3",
    "fa4": "FlashAttention-4",
    "flex": "FlexAttention",
    "cudnn": "cuDNN",
    "triton": "FlashAttention in Triton",
    "efficient": "torch's memory-efficient one",
    "unfused": "two products with softmax between them",
}

WIDTH = 0.3
"""Log half-width at 90 %: 0.23–0.44 by source and GPU on AIConfigurator."""
BACKWARD_WIDTH = 0.1
"""Addition for backward: the ratio is 3.3 ± 0.4."""
UNLIKE_WIDTH = 0.2
"""Addition on Blackwell (SimuMax: 1.0–2.1× at 4k by number of heads), for a kernel other than the best one, and in fp8, whose products take
0.6 of the time of 16-bit ones here (FlashAttention-3, arXiv 2407.08608, figure 7: 1.2 PFLOP/s for 0.74 with heads of 256)."""
MATH_SLOWDOWN = 6.0
"""Unfused attention in one call, with scores in memory: as in FlashAttention-2's comparisons (arXiv 2307.08691, figure 4)."""

DELTA_SHARE = 0.4
"""Share of `efficiency.attention`, so about 0.25 of peak, and of memory bandwidth. There are no samples: an analogy with
kernels that keep a state in registers. Products within a chunk of one head's size double the recurrence's FLOPs."""
DELTA_CHUNK_PRODUCTS = 2.0
DELTA_START_US = 40.0
"""Start of several kernels: within chunks, between chunks, output."""
DELTA_WIDTH = 0.9


@formula_of(Attention)
def attention_us(call: Attention, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    slowdown = slowdown_of(call.kernel, gpu.architecture)
    us = slowdown * _forward_us(call, gpu)
    width = WIDTH
    if slowdown > 1 or gpu.architecture == "blackwell" or call.dtype == "fp8":
        width += UNLIKE_WIDTH
    if phase != "forward":
        us *= _backward_ratio(call, gpu.architecture)
        us *= FLEX_BACKWARD / FLEX_FORWARD if call.kernel == "flex" else 1.0
        if "triton" in call.kernel and call.head_dim > TRITON_HEAD:
            us *= CONSTANTS["TRITON_LARGE_HEAD_BACKWARD"].value
        width += BACKWARD_WIDTH
    return us, width


def _forward_us(call: Attention, gpu: Gpu) -> float:
    seq_len = call.seq_len
    window = min(call.window or seq_len, seq_len)
    edge = BLOCK if window < seq_len else (BLOCK / 2 if call.causal else 0)
    mean_keys = min(call.seen * seq_len + edge, seq_len)
    longest_keys = min(window + BLOCK, seq_len)
    head = (call.head_dim + call.value_head_dim) / 2
    multiprocessors = gpu.multiprocessors or 1
    best = gpu.efficiency["attention"] * (1 + EXPONENTIAL / STATED_HEAD)
    peak = gpu.peak_flops_per_us(call.dtype)
    speed = min(best, 1.0) * peak / multiprocessors
    # exponentials are no faster in fp8
    exponential = EXPONENTIAL * peak / gpu.peak_flops_per_us("bf16") if call.dtype == "fp8" else EXPONENTIAL
    us_of_key = 4 * BLOCK * (head + exponential) / speed
    blocks = -(-seq_len // BLOCK) * call.batch * call.heads / multiprocessors
    mean_us = blocks * (us_of_key * mean_keys + BLOCK_US)
    longest_us = us_of_key * longest_keys + BLOCK_US
    compute_us = joined_us(mean_us, longest_us, BALANCE)
    memory_us = call.bytes_moved("forward") / (MEMORY_SHARE * gpu.bytes_per_us())
    return START_US + joined_us(compute_us, memory_us, OVERLAP)


def _backward_ratio(call: Attention, architecture: str) -> float:
    scores, values = call.head_dim, call.value_head_dim
    products = (3 * scores + 2 * values) / (scores + values) / BACKWARD_PRODUCTS
    keys = min(call.window or call.seq_len, call.seq_len)
    hopper = CONSTANTS["ATTENTION_BACKWARD_HOPPER"].value if architecture == "hopper" else BACKWARD_ELSEWHERE
    return BACKWARD.get(architecture, hopper) * products * (1 + BACKWARD_SHORT / max(keys, SHORTEST))


def kernel_in_words(kernel: str, architecture: str) -> str:
    """The kernel of attention that a run's times stand for."""
    return IN_WORDS.get(kernel) or BEST.get(architecture, "the device's best")


def slowdown_of(kernel: str, architecture: str) -> float:
    """Time of a kernel, by name, over the time of the architecture's best one, FlashAttention-3 on Hopper."""
    slower = _slower_families(architecture)
    if kernel == "math":
        return MATH_SLOWDOWN
    if kernel == "fa1":
        return FLASH_1 * slower.get("fa2", 1.0)
    if kernel in FLASH_2:
        return slower.get("fa2", 1.0)
    if kernel == "flex":
        return FLEX_FORWARD * slower.get("fa2", 1.0)
    return slower["triton"] if "triton" in kernel else 1.0


def _slower_families(architecture: str) -> Mapping[str, float]:
    """The slower families of kernels, as published H100, B200 and A100 runs show them."""
    if architecture == "ampere":
        return {"triton": CONSTANTS["TRITON_AMPERE"].value}
    if architecture == "hopper":
        return {"fa2": CONSTANTS["FA2_HOPPER"].value, "triton": CONSTANTS["TRITON_HOPPER"].value}
    if architecture == "blackwell":
        return {"fa2": CONSTANTS["FA2_BLACKWELL"].value, "triton": CONSTANTS["TRITON_HOPPER"].value}
    return SLOWDOWN_ELSEWHERE


@formula_of(GatedDelta)
def gated_delta_us(call: GatedDelta, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    speed = DELTA_SHARE * gpu.efficiency["attention"] * gpu.peak_flops_per_us(call.dtype)
    compute_us = DELTA_CHUNK_PRODUCTS * call.flops(phase) / speed
    memory_us = call.bytes_moved(phase) / (DELTA_SHARE * gpu.bytes_per_us())
    start_us = DELTA_START_US * (1 if phase == "forward" else 2)
    return start_us + joined_us(compute_us, memory_us, OVERLAP), DELTA_WIDTH


DECODE_START_US = {"hopper": 12.5, "ampere": 18.0}
START_ELSEWHERE = 11.0
"""Start of the kernel and of the one that joins the parts of long caches: the time of AIConfigurator's smallest caches (vLLM 0.14;
H100, A100, L40S). The shares are those of its largest; median errors of 1 to 512 sequences of 128 to 32k keys are 7 to 13 %."""
DECODE_MEMORY_SHARE = {"hopper": 0.92, "ampere": 0.76}
MEMORY_SHARE_ELSEWHERE = 0.84
DECODE_WIDTH = 0.35
"""Log half-width at 90 % on those tables, whose kernels fill the multiprocessors in waves."""
COMPUTE_SHARE = 0.65
"""Share of the peak, which binds latent attention alone, whose many heads read the same keys: 660 TFLOP/s of the 989 of an H800 (README
of github.com/deepseek-ai/FlashMLA)."""
PACKING = ("hopper", "blackwell", "cdna2", "cdna3", "cdna4")
"""Architectures on which serving engines read keys once for all heads that share them: FlashAttention 3 and later; on AMD's the kernels of
vLLM and AITER, which have one block for each head of keys and the queries of its group in the tile of a matrix instruction
(csrc/rocm/attention.cu: `paged_attention_ll4mi_QKV_mfma16_kernel`, grid (num_seqs, num_partitions, num_kv_heads), GQA_RATIO). On others
vLLM takes FlashAttention 2."""
CACHE_BYTES_PER_US = 2.5e6
"""Bandwidth of the last-level cache at which heads that share keys read them one by one: Qwen3-14B, Llama-3.1-8B and
Mixtral-8x7B on A100 under vLLM V1 agree within 3 % (the step's growth per request over what the weights and the host
leave). Ada's cache is taken for as fast."""


COMPUTED_IN = "bf16"
"""Dtype of the products, whatever the dtype of the cache."""


@formula_of(DecodeAttention)
def decode_attention_us(call: DecodeAttention, phase: Phase, gpu: Gpu) -> tuple[float, float]:
    share = DECODE_MEMORY_SHARE.get(gpu.architecture, MEMORY_SHARE_ELSEWHERE)
    start_us = DECODE_START_US.get(gpu.architecture, START_ELSEWHERE)
    us = call.bytes_moved(phase) / (share * gpu.bytes_per_us())
    if call.kernel == UNPACKED:
        by_each_head = 2 * call.operand_bytes * call.batch * call.heads * call.seen * call.head_dim
        us = max(us, by_each_head / CACHE_BYTES_PER_US)
    compute_us = call.flops(phase) / (COMPUTE_SHARE * gpu.peak_flops_per_us(COMPUTED_IN))
    return start_us + max(us, compute_us), DECODE_WIDTH
