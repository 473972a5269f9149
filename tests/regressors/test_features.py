"""Sums that do not depend on the rows around them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from regressors.features.arrays import weighed_sum
from regressors.features.digests import shape_digest
from regressors.features.pricing import MANY_CALLS, price, price_all
from sampling.call import Call, Phase
from sampling.collectives.kinds import AllGather, AllReduce
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import Attention, DecodeAttention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.memory_bound import Gelu, LayerNorm, ResidualAdd, RoPE, Softmax, SwiGLU
from tests.expert_calls import expert_mlp
from tests.sampling.cells.layer_shapes import DENSE_LAYER


@pytest.mark.parametrize("shape", [(5,), (200,), (20, 1), (20, 200)])
def test_a_row_sums_to_the_same_alone_and_among_others(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    rows, weights = random.normal(size=(60, shape[0])), random.normal(size=shape)
    together = weighed_sum(rows, weights)
    assert together == pytest.approx(rows @ weights, rel=1e-9, abs=1e-9)
    for few in (1, 2, 3, 7):
        parts = [weighed_sum(rows[start : start + few], weights) for start in range(0, len(rows), few)]
        assert np.concatenate(parts).tobytes() == together.tobytes()


# The digest of a call: what rows were stored under stays what they are found by.

ATTENTION = Attention(dtype="fp32", batch=2, seq_len=16, heads=4, kv_heads=2, head_dim=16, causal=True)


@pytest.mark.parametrize(
    ("call", "digest"),
    [
        (DENSE_LAYER, 0xF363311202D91628),
        (ATTENTION, 0x2CD8783A5AA822CD),
        (Gemm(dtype="fp32", m=8, n=16, k=32), 0x0850798D49213FF1),
        (AllReduce(size_bytes=64, ranks=2, ranks_per_node=2), 0x30BD0E8903A9B10B),
    ],
)
def test_a_call_keeps_the_digest_it_had_before_it_had_fields_with_defaults(call: Call, digest: int) -> None:
    assert shape_digest(call, "forward", 1) == digest


def test_a_field_that_differs_from_its_default_is_another_shape() -> None:
    others = (
        replace(DENSE_LAYER, compiled=True),
        replace(DENSE_LAYER, output_bias="with"),
        replace(DENSE_LAYER, group_nodes=2),
    )
    assert len({shape_digest(call, "forward", 1) for call in (DENSE_LAYER, *others)}) == 4
    assert shape_digest(replace(ATTENTION, window=4), "forward", 1) != shape_digest(ATTENTION, "forward", 1)


# Calls of a kind priced at once are priced as each by itself.

SIZES = range(1, 2 * MANY_CALLS)


def many(dtype: str) -> list[tuple[Phase, Sequence[Call]]]:
    def attention(s: int) -> Attention:
        kernel, window = ("flash", 0) if s % 3 else ("", 64)
        return Attention(
            dtype=dtype,
            batch=1 + s % 4,
            seq_len=s,
            heads=8,
            kv_heads=2,
            head_dim=64,
            causal=bool(s % 2),
            window=window,
            kernel=kernel,
        )

    def decode(s: int) -> DecodeAttention:
        return DecodeAttention(dtype=dtype, batch=s, keys=3 * s, heads=8, kv_heads=2, head_dim=64, window=64 * (s % 2))

    def experts(s: int) -> ExpertMLP:
        return expert_mlp(dtype=dtype, tokens=s, hidden=64, inter=128, topk=2, experts=8)

    return [
        ("backward", [Gemm(dtype=dtype, m=7 * s, n=128 * s, k=64) for s in SIZES]),
        ("forward", [BatchedGemm(dtype=dtype, batch=s, m=3 * s, n=64, k=65, adds=bool(s % 2)) for s in SIZES]),
        ("backward", [attention(s) for s in SIZES]),
        ("forward", [decode(s) for s in SIZES]),
        ("forward", [SwiGLU(dtype=dtype, tokens=s, width=777 * s) for s in SIZES]),
        ("backward", [Gelu(dtype=dtype, tokens=s, width=777) for s in SIZES]),
        ("forward", [ResidualAdd(dtype=dtype, tokens=s, hidden=777) for s in SIZES]),
        ("forward", [RoPE(dtype=dtype, batch=2, seq_len=s, heads=4, head_dim=64) for s in SIZES]),
        ("backward_weight", [LayerNorm(dtype=dtype, tokens=s, hidden=5 * s) for s in SIZES]),
        ("backward", [Softmax(dtype=dtype, matrices=s, seq_len=s) for s in SIZES]),
        ("forward", [AllReduce(size_bytes=1000 * s, ranks=2 + s % 2, ranks_per_node=2) for s in SIZES]),
        ("forward", [AllGather(size_bytes=1000 * s, ranks=2, ranks_per_node=1, groups=1 + s % 2) for s in SIZES]),
        ("forward", [experts(s) for s in SIZES]),
    ]


@pytest.mark.parametrize(("hardware", "dtype"), [("h100-sxm", "bf16"), ("cpu", "fp32")])
def test_many_calls_at_once_are_priced_as_each_by_itself(hardware: str, dtype: str) -> None:
    cluster = load_cluster(hardware=hardware, nodes=2, gpus_per_node=2, profile="any", cores=4)
    for phase, calls in many(dtype):
        for together, call in zip(price_all(calls, phase, cluster), calls, strict=True):
            assert together == price(call, phase, cluster), call


def test_a_few_calls_and_none_are_priced_too() -> None:
    cluster = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="any")
    call = Gemm(dtype="bf16", m=64, n=64, k=64)
    assert price_all([call], "forward", cluster) == [price(call, "forward", cluster)]
    assert price_all([], "forward", cluster) == []
