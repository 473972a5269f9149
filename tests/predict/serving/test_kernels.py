"""Experts over many GPUs of a server: exchanges by DeepEP, two batches that hide them, copies of busy experts."""

from functools import cache

import pytest

from predict.prices.collectives import collective_us
from predict.serving.batch import Chunk, StepBatch
from predict.serving.config import load_serving
from predict.serving.kernels import token_exchange
from predict.serving.kv_cache import weight_bytes
from predict.serving.stepper import Stepper, stepper
from sampling.collectives.kinds import Collective
from tests.predict.serving.servers import CONFIG

WIDE = (
    "model=deepseek-v3",
    "hardware=H800",
    "placement.dp=32",
    "placement.expert_parallel=true",
    "placement.precision=fp8",
    "load.prompt=100",
    "engine.max_num_seqs=256",
    "engine.max_num_batched_tokens=16384",
)
DEEPEP = "engine.dispatch=deepep"
PROMPTS, ANSWERS = StepBatch(chunks=(Chunk(tokens=4096),) * 4), StepBatch(decodes=(1_000,) * 128)


@cache
def wide(*keys: str) -> Stepper:
    return stepper(load_serving(CONFIG, [*WIDE, *keys]).server)


def median_us(batch: StepBatch, *keys: str) -> float:
    return wide(*keys).step_times([batch])[0].median_us


@pytest.mark.parametrize("ranks, there, back", [(16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369)])
def test_low_latency_kernels_take_what_deepep_publishes(ranks: int, there: float, back: float) -> None:
    """README of DeepEP: H800, 128 tokens of 7,168, 8 of 256 experts, fp8 there and bf16 back."""
    server = wide(DEEPEP, f"placement.dp={ranks}").server
    calls = [one.call for one in token_exchange(server, 128)]
    times = [collective_us(call, server.cluster) for call in calls[:2] if isinstance(call, Collective)]
    assert times == pytest.approx([there, back], rel=0.12)


def test_tokens_sent_to_their_experts_alone_are_faster_than_all_to_all_gpus() -> None:
    for batch in (PROMPTS, ANSWERS):
        assert median_us(batch, DEEPEP) < 0.8 * median_us(batch)


def test_two_batches_hide_exchanges_in_large_steps_and_cost_weights_in_small_ones() -> None:
    both = "engine.two_batch_overlap=true"
    assert 1.1 < median_us(PROMPTS, DEEPEP) / median_us(PROMPTS, DEEPEP, both) < 1.6
    small = StepBatch(decodes=(1_000,) * 2)
    assert median_us(small, DEEPEP) < median_us(small, DEEPEP, both)


def test_the_busiest_gpu_decides_and_copies_take_memory() -> None:
    assert median_us(PROMPTS, DEEPEP) < median_us(PROMPTS, DEEPEP, "placement.expert_load=1.3")
    plain, copied = (wide(DEEPEP, *keys).server for keys in ((), ("placement.redundant_experts=32",)))
    experts = plain.model.experts
    assert experts is not None
    sparse = sum(kind.sparse for kind in plain.model.kinds())
    one_each = sparse * experts.routed_parameters(plain.model) / experts.count
    assert weight_bytes(copied) - weight_bytes(plain) == pytest.approx(one_each, rel=1e-6)
