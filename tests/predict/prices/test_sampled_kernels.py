"""Attention by a kernel that a framework names: sampled by the software's own choice, priced from the kernel that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from predict import load
from predict.prices.collectives import CollectiveCorrection
from predict.prices.cost_model import Asked
from predict.prices.sampled import WithinSamples
from predict.workload.decompose import requests_of_runs
from regressors.bank.times import Times
from sampling.files.places import CONFIGS
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.attention import Attention

HOPPER = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
OWN_CHOICE = Attention(dtype="bf16", batch=1, seq_len=4096, heads=32, kv_heads=8, head_dim=128, causal=True)
FLASH_2 = 1.7
"""FlashAttention-2's time over the best kernel's on Hopper (predict/prices/kernels/attention.py)."""


class Sampled:
    """A model of attention by the software's own choice alone, 100 µs whatever its shape."""

    def times(self, calls: Sequence[Asked], cluster: Cluster) -> list[Times | None]:
        time = Times(median_us=100.0, low_us=90.0, high_us=110.0, source="measured")
        return [time if call == OWN_CHOICE else None for call, _ in calls]


@pytest.mark.parametrize(
    ("ran", "asked", "factor"),
    [
        ("", "fa2", FLASH_2),
        ("cudnn", "fa2", FLASH_2),
        ("flash", "fa2", 1.0),
        ("flash", "fa3", 1 / FLASH_2),
        ("cudnn", "cudnn", 1.0),
        ("flash", "", 1.0),
    ],
)
def test_a_kernel_is_priced_from_the_one_that_ran(ran: str, asked: str, factor: float) -> None:
    model = WithinSamples(Sampled(), CollectiveCorrection(Sampled()), ran)
    (time,) = model.times([(replace(OWN_CHOICE, kernel=asked), "forward")], HOPPER)
    assert time is not None
    assert time.median_us == pytest.approx(100.0 * factor)


@pytest.mark.parametrize("kernel", ["fa2", "fa3", "cudnn"])
def test_a_sampler_is_asked_for_attention_that_it_can_time(kernel: str) -> None:
    run = load(CONFIGS / "runs" / "llama3-70b-64xh100.yml", [f"execution.attention={kernel}"])
    calls = [request.call for requests in requests_of_runs([run]).values() for request in requests]
    attentions = [call for call in calls if isinstance(call, Attention)]
    assert attentions
    assert {call.kernel for call in attentions} == {""}
