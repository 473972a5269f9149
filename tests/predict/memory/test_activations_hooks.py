"""The bytes that torch saves for backward, counted for the modules of which layers are made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from predict.layers.norms import norm_bytes
from predict.layers.saved_tensors import Sizes
from predict.rank.share import RankShare
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.memory.saved_bytes import BF16, FP32, saved_bytes
from tests.predict.workload.parallel_runs import made


def sizes_of(profile: str = "eager", precision: str = "bf16", model: str = "llama3-8b") -> Sizes:
    batch = {"global": 1, "micro": 1, "seq_len": 512}
    return Sizes(rank=RankShare(run=made(model, precision=precision, batch=batch)), profile=PROFILES[profile])


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_norms_keep_what_their_kind_says(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

    x = torch.randn(10, 24, dtype=dtype, requires_grad=True)
    precision = "bf16" if dtype is BF16 else "fp32"
    for kind, model in ((LlamaRMSNorm, "llama3-8b"), (Qwen3NextRMSNorm, "qwen3.5-35b-a3b")):
        norm = kind(24).to(dtype)
        assert saved_bytes(lambda norm=norm: norm(x), [norm]) == norm_bytes(sizes_of("eager", precision, model), 10, 24)
    layer_norm = nn.LayerNorm(24).to(dtype)
    # on a CPU mean and 1/σ have the input's dtype, on a GPU they are fp32
    statistics = 8 - 2 * dtype.itemsize
    counted = saved_bytes(lambda: layer_norm(x), [layer_norm]) + 10 * statistics
    assert counted == norm_bytes(sizes_of("eager", precision, "gpt2"), 10, 24)
