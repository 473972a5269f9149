"""Adapters: their weights, what frozen weights leave out of a step, and what is held in memory."""

from __future__ import annotations

from typing import Any

import pytest

from predict.memory.estimate import memory_of
from predict.rank.adapters import adapters_of, trained_in_layer
from predict.rank.share import layer_weights
from predict.run.adapters import Adapters
from predict.run.training_run import TrainingRun
from sampling.operators.gemm import Gemm
from tests.predict.workload.parallel_runs import counted, estimated, made, ranks

LORA: dict[str, Any] = {"adapters__kind": "lora", "adapters__rank": 16}
HIDDEN, FFN, KV = 8192, 28672, 1024
"""Of Llama-3-70B."""


def trained(run: TrainingRun) -> int:
    (kind,) = set(run.model.kinds())
    return trained_in_layer(run, kind, layer_weights(run.model, run.plan, kind)).total


@pytest.mark.parametrize(
    ("settings", "sides"),
    [
        ({}, 2 * (HIDDEN + HIDDEN) + 2 * (HIDDEN + KV) + 3 * (HIDDEN + FFN)),
        ({"adapters__targets": "attention"}, 2 * (HIDDEN + HIDDEN) + 2 * (HIDDEN + KV)),
        ({"adapters__targets": "qkv", "adapters__joint": True}, HIDDEN + HIDDEN + 2 * KV),
        ({"adapters__targets": "linear_fc2,o_proj"}, HIDDEN + FFN + 2 * HIDDEN),
        # A of a column-parallel product is whole on each rank, as is B of a row-parallel one
        ({"adapters__targets": "attention", "plan__tp": 8}, 2 * (HIDDEN + HIDDEN // 8) + 2 * (HIDDEN + KV // 8)),
    ],
    ids=str,
)
def test_adapters_have_the_weights_of_both_sides_of_a_product_times_their_rank(
    settings: dict[str, Any], sides: int
) -> None:
    assert trained(made("llama3-70b", 2, **LORA, **settings)) == 16 * sides


def test_dora_trains_a_magnitude_for_each_output_too() -> None:
    lora, dora = (trained(made("llama3-70b", 2, **{**LORA, "adapters__kind": kind})) for kind in ("lora", "dora"))
    assert dora - lora == HIDDEN + 2 * KV + HIDDEN + 2 * FFN + HIDDEN


def test_experts_of_a_rank_have_adapters_of_their_own() -> None:
    run = made("qwen3-30b-a3b", 2, plan__dp=8, plan__ep=8, **LORA)
    (kind,) = set(run.model.kinds())
    assert {each.experts for each in adapters_of(run, kind)} == {0, 128 // 8}


def test_the_backward_of_frozen_products_is_that_of_their_input() -> None:
    (rank,) = ranks(made("llama3-70b", 2, **LORA))
    (chunk,) = rank.chunks
    gemms = [call for call, _ in counted(chunk.backward) if isinstance(call.call, Gemm)]
    small = [call for call in gemms if isinstance(call.call, Gemm) and 16 in (call.call.n, call.call.k)]
    big = [call for call in gemms if call not in small]
    assert {call.phase for call in big} == {"backward_input"}
    assert {call.phase for call in small} == {"backward"}


@pytest.mark.parametrize("model", ["llama3-70b", "deepseek-v3"])
def test_a_step_of_adapters_is_between_two_thirds_and_all_of_one_that_trains_everything(model: str) -> None:
    whole, adapted = (estimated(made(model, 4, batch__global=64, **each)) for each in ({}, LORA))
    assert 0.6 < adapted.step_time.median_us / whole.step_time.median_us < 1.0
    assert adapted.breakdown_us["optimizer"] < whole.breakdown_us["optimizer"] / 20


def test_frozen_weights_have_neither_gradients_nor_moments() -> None:
    whole, adapted = (
        memory_of(made("llama3-70b", 8, plan__dp=8, batch__global=8, **each)).ranks[0] for each in ({}, LORA)
    )
    assert adapted.optimizer < whole.optimizer / 50
    assert adapted.resident_gradients < whole.resident_gradients / 50
    assert adapted.parameters == pytest.approx(whole.parameters, rel=0.02)


def test_a_larger_rank_takes_longer() -> None:
    steps = [
        estimated(made("llama3-70b", 4, **{**LORA, "adapters__rank": rank})).step_time.median_us
        for rank in (8, 64, 256)
    ]
    assert steps == sorted(steps)


def test_nothing_is_trained_beside_all_weights() -> None:
    assert not Adapters().are_trained
    assert Adapters(kind="lora", targets="all").products == ("qkv", "proj", "up", "down")
