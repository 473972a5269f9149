"""The digest of a call: what rows were stored under stays what they are found by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regressors.features.digests import shape_digest
from sampling.call import Call
from sampling.collectives.kinds import AllReduce
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from tests.sampling.cells.layer_shapes import DENSE_LAYER

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
