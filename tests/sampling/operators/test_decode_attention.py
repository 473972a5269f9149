"""decode_attention: its arithmetic, its torch work, and its price where nothing was sampled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from predict.prices.kernels import operator_us
from sampling.catalogue import make_call
from sampling.errors import SkippedError
from sampling.hardware.cluster import load_cluster
from sampling.operators.decode_attention import UNPACKED, DecodeAttention
from sampling.torch_work.build import build

CALL = DecodeAttention(dtype="bf16", batch=32, keys=1024, heads=32, kv_heads=8, head_dim=128)


def test_it_reads_the_cache_once_whatever_the_heads_that_share_it() -> None:
    cache = 2 * 32 * 1024 * 2 * 8 * 128
    assert CALL.bytes_moved("forward") == cache + 2 * 32 * 128 * 2 * 32
    assert replace(CALL, window=256).bytes_moved("forward") < cache / 3
    assert CALL.flops("forward") == 4 * 32 * 32 * 128 * 1024
    assert make_call(CALL.NAME, CALL.fields()) == CALL


def test_values_within_the_keys_are_read_with_them() -> None:
    latent = replace(CALL, heads=128, kv_heads=1, head_dim=576, values_in_keys=512)
    assert latent.bytes_moved("forward") == 2 * 32 * (1024 * 576 + 128 * (576 + 512))
    assert latent.flops("forward") == 2 * 32 * 128 * (576 + 512) * 1024
    small = DecodeAttention(dtype="fp32", batch=2, keys=9, heads=4, kv_heads=1, head_dim=8, values_in_keys=6)
    build(small, torch.device("cpu")).prepare("forward")


def test_it_runs_in_torch_with_shared_heads() -> None:
    small = DecodeAttention(dtype="fp32", batch=2, keys=9, heads=4, kv_heads=2, head_dim=8)
    workload = build(small, torch.device("cpu"))
    workload.prepare("forward")
    workload.run("forward")
    with pytest.raises(SkippedError, match="unpacked"):
        build(replace(small, kernel=UNPACKED), torch.device("cpu"))


@pytest.mark.parametrize(
    ("hardware", "keys", "measured_us"), [("h100-sxm", 512, 37.3), ("h100-sxm", 8192, 365.0), ("a100-80gb", 512, 71.7)]
)
def test_its_price_is_near_published_tables(hardware: str, keys: int, measured_us: float) -> None:
    # AIConfigurator, vLLM 0.14: 32 sequences, 16 heads that share 8
    gpu = load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="test").gpu
    us, _ = operator_us(replace(CALL, heads=16, keys=keys), "forward", gpu)
    assert us == pytest.approx(measured_us, rel=0.2)


def test_heads_that_do_not_share_reads_take_longer() -> None:
    gpu = load_cluster(hardware="a100-80gb", nodes=1, gpus_per_node=1, profile="test").gpu
    packed, unpacked = (operator_us(replace(CALL, kernel=kernel), "forward", gpu)[0] for kernel in ("", UNPACKED))
    assert unpacked > 1.5 * packed
    assert unpacked == pytest.approx(operator_us(replace(CALL, kernel=UNPACKED, kv_heads=4), "forward", gpu)[0])
