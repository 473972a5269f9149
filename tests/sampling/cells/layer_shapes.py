"""Whole layers of small sizes, for the tests that need one and change a field or two of it with `replace`."""

from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer

DENSE_LAYER = DenseLayer(
    dtype="fp32",
    batch=2,
    seq_len=16,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    ffn=160,
    gated=True,
    norm="rms",
    rope=True,
    qkv_bias=False,
    bias=False,
    tp=1,
    sp=False,
)
MOE_LAYER = MoELayer(
    dtype="fp32",
    batch=2,
    seq_len=8,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    inter=16,
    experts=4,
    topk=2,
    distribution="power_law_1.2",
    gated=True,
    norm="rms",
    rope=True,
    qkv_bias=True,
    shared_inter=24,
)
