"""Names of kernels that no operator of the trace names: those of fused libraries, of compilers and of replayed CUDA graphs.

Such a kernel is launched by an operator of a library's own, or by no operator that a trace shows; its own name still says what it computes.
"""

from __future__ import annotations

import re
from functools import cache

from predict.explain.trace.naming import ATTENTION, Named
from predict.step.breakdown import OPTIMIZER

PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), heading)
    for pattern, heading in (
        ("multi_tensor|adam", OPTIMIZER),
        ("flash|fmha|attn|attention|sdpa|mha_(fwd|bwd)|masked_softmax", ATTENTION),
        ("cross_?entropy|nll_?loss|log_?softmax", "cross_entropy"),
        ("group(ed)?_?(gemm|mm)|moe_?gemm", "grouped_gemm"),
        ("gemm|nvjet|cutlass|cijk_|cublas|split_?k|xmma|tensorop|triton_tem", "gemm"),
        ("unpermute", "unpermute"),
        ("permute", "permute"),
        ("top_?k|router", "router"),
        ("layer_?norm|(?<![a-z])ln_(fwd|bwd)", "layer_norm"),
        ("rms_?norm|rsqrt", "rms_norm"),
        ("swiglu|silu", "swiglu"),
        ("gelu", "gelu"),
        ("rope|rotary", "rope"),
        ("embedding", "embedding"),
        ("dropout", "dropout"),
    )
)
"""Parts of kernels' names and their headings, the first that is found wins: a fused kernel is named by its costliest part. Names are those
of cuBLAS (nvjet, xmma), CUTLASS, rocBLAS (Cijk_), cuDNN, flash-attention, Transformer Engine, apex (multi_tensor) and torch's compiler, which
joins the operators that it fuses (triton_red_fused_…)."""
BACKWARD = re.compile(r"bwd|backward|dgrad|wgrad|(?<![a-z])d(q|kv|gamma)(?![a-z])", re.IGNORECASE)


@cache
def name_of_kernel(kernel: str) -> Named | None:
    """The heading that a kernel's own name tells, and its direction if the name says that it is of a backward; None for any other name."""
    heading = next((heading for pattern, heading in PATTERNS if pattern.search(kernel)), None)
    if heading is None:
        return None
    return Named(heading, None, "backward" if BACKWARD.search(kernel) else None)
