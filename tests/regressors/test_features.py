"""Sums that do not depend on the rows around them."""

from dataclasses import Field, fields, replace
from typing import Any

import numpy as np
import pytest

from regressors.features.arrays import weighed_sum
from regressors.features.digests import shape_digest
from regressors.features.pricing import MANY_CALLS, price, price_all
from sampling.call import Call, registry
from sampling.collectives.kinds import AllReduce
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
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
GIVEN = {"stored": "nf4", "ranks": 2, "ranks_per_node": 2, "width": 4}
"""Fields without a default that are neither columns nor switches."""


def of_size(kind: type[Call], dtype: str, size: int) -> Call:
    """A call whose columns grow with the size, while every other one of its switches and optional sizes is set."""

    def value(each: Field[Any]) -> Any:
        if each.name in kind.COLUMNS:
            return (2 + kind.COLUMNS.index(each.name)) * size
        if each.type == "bool":
            return bool(size % 2)
        if each.default == 0:
            return 64 * (size % 2)
        return ({"dtype": dtype} | GIVEN).get(each.name, each.default)

    return kind(**{each.name: value(each) for each in fields(kind)})


@pytest.mark.parametrize("kind", [each for each in registry().values() if each.COLUMNS], ids=lambda kind: kind.NAME)
@pytest.mark.parametrize(("hardware", "dtype"), [("h100-sxm", "bf16"), ("cpu", "fp32")])
def test_many_calls_at_once_are_priced_as_each_by_itself(kind: type[Call], hardware: str, dtype: str) -> None:
    cluster = load_cluster(hardware=hardware, nodes=2, gpus_per_node=2, profile="any", cores=4)
    calls = [of_size(kind, dtype, size) for size in SIZES]
    for phase in calls[0].PHASES:
        for together, call in zip(price_all(calls, phase, cluster), calls, strict=True):
            assert together == price(call, phase, cluster), call


def test_a_few_calls_and_none_are_priced_too() -> None:
    cluster = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="any")
    call = Gemm(dtype="bf16", m=64, n=64, k=64)
    assert price_all([call], "forward", cluster) == [price(call, "forward", cluster)]
    assert price_all([], "forward", cluster) == []
