"""decode_attention: its arithmetic, its torch work, and its price where nothing was sampled."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from predict.prices.kernels import operator_us
from sampling.call import make_call
from sampling.errors import SkippedError
from sampling.hardware.cluster import load_cluster
from sampling.operators.attention import UNPACKED, DecodeAttention
from sampling.torch_work.build import build
from sampling.torch_work.kernels.attention import decode_mask, paged_decode

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
    for paged in (replace(small, block=4), replace(small, block=4, kv_heads=1, values_in_keys=6)):
        workload = build(paged, torch.device("cpu"))
        workload.prepare("forward")
        workload.run("forward")


def test_keys_in_blocks_give_what_keys_in_one_piece_do() -> None:
    keys, values = torch.randn(2, 9, 4, 2, 8).unbind(0)
    query, table = torch.randn(2, 4, 8), torch.tensor([[5, 1, 0], [8, 2, 3]])
    lengths = torch.tensor([9, 12])
    found = paged_decode(query, keys, values, table, decode_mask(lengths, 12))
    for place, (blocks, length) in enumerate(zip(table, lengths.tolist(), strict=True)):
        own = [cache[blocks].flatten(0, 1)[:length].transpose(0, 1) for cache in (keys, values)]
        whole = scaled_dot_product_attention(query[place].unsqueeze(1), *own, enable_gqa=True).squeeze(1)
        assert torch.allclose(found[place], whole, atol=1e-6)


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
