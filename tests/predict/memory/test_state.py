"""Weights, gradients and optimizer state of a rank: the model's parameters, divided over ranks, times their bytes."""

from dataclasses import replace
from typing import Any

import pytest

from predict.memory.estimate import MemoryModel, memory_of
from predict.memory.state import bytes_per_parameter, chunks_of_ranks, unreduced_bytes, weights_of_chunks
from predict.rank.groups import groups_of
from predict.rank.share import padded_vocabulary
from predict.run.frameworks import memory_profile_of
from predict.run.training_run import TrainingRun
from tests.predict.workload.parallel_runs import beside, made, spec
from tests.shipped_models import FORMS

LARGE_VOCABULARY = {"plan__tp": 8, "plan__sp": True, "plan__pp": 8}


def on_rank(run: TrainingRun, rank: int = 0) -> int:
    """Parameters that a rank computes with."""
    return weights_of_chunks(chunks_of_ranks(run)[rank]).total


def in_pipeline(run: TrainingRun) -> int:
    """Parameters of one replica without tensor parallelism, over all pipeline and expert ranks."""
    weights = [weights_of_chunks(chunks) for chunks in chunks_of_ranks(run)]
    return sum(each.dense + each.experts * run.plan.ep for each in weights)


def padding(run: TrainingRun) -> int:
    """Rows that round the vocabulary up to a multiple of 128 · tp, in every table of it."""
    has_head = not (run.model.tied and run.plan.pp == 1)
    tables = (run.model.rows_looked_up, *([run.model.vocab] * has_head))
    return sum(padded_vocabulary(rows, run.plan.tp) - rows for rows in tables) * run.model.hidden


@pytest.mark.parametrize("name", FORMS)
def test_one_rank_holds_the_whole_model(name: str) -> None:
    model = spec(name)
    run = made(replace(model, mtp_layers=0), **{"batch__seq_len": 128, **beside(model)})
    own = model.parameters_with_tower if model.encoder else model.parameters
    assert on_rank(run) - padding(run) == own


@pytest.mark.parametrize("name", ["llama3-70b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_pipeline_and_expert_ranks_add_up_to_the_model(name: str) -> None:
    run = made(name, plan__pp=4, plan__dp=4, plan__ep=4 if spec(name).experts else 1)
    assert in_pipeline(run) - padding(run) == spec(name).parameters


def test_a_tied_table_counts_once_on_one_rank_and_twice_at_the_ends_of_a_pipeline() -> None:
    model = spec("gemma3-27b")
    table = padded_vocabulary(model.vocab, 1) * model.hidden
    alone, apart = made(model), made(model, plan__pp=2)
    assert on_rank(alone) - padding(alone) == model.parameters
    assert in_pipeline(apart) - in_pipeline(alone) == table


def test_tensor_parallelism_divides_static_memory() -> None:
    run = made("llama3.1-405b", **LARGE_VOCABULARY)
    assert on_rank(run) == pytest.approx(6.6e9, rel=0.01)
    state = MemoryModel(run).baseline(0).state
    assert state.parameters == 2 * on_rank(run)
    assert state.total == (2 + 4 + 12) * on_rank(run)


def test_fsdp_shards_all_of_the_state() -> None:
    run = made("llama3-70b", plan__dp=64, plan__zero=3, execution__framework="torchtitan", batch__global=64)
    (rank,) = memory_of(run).ranks
    state = rank.parameters + rank.gradients + rank.optimizer
    assert state <= 16 * on_rank(run) / 64 * 1.001
    state = MemoryModel(run).baseline(0).state
    assert state.total == pytest.approx(16 * on_rank(run) / 64)


@pytest.mark.parametrize(
    ("zero", "bytes_each"), [(0, 2 + 4 + 12), (1, 2 + 4 + 12 / 8), (2, 2 + (4 + 12) / 8), (3, (2 + 4 + 12) / 8)]
)
def test_each_zero_stage_shards_one_part_more(zero: int, bytes_each: float) -> None:
    run = made("llama3-8b", plan__dp=8, plan__zero=zero)
    state = MemoryModel(run).baseline(0).state
    # Megatron's own FSDP leaves embedding and head gathered
    ends = sum(unit.weights.total for unit in chunks_of_ranks(run)[0][0].units if unit.role != "layer")
    assert state.total == pytest.approx(bytes_each * on_rank(run) + (2 * ends if zero == 3 else 0))


def test_a_lone_rank_of_fsdp_holds_fp32_alone_and_gathers_16_bits() -> None:
    run = made("qwen3-8b", execution__framework="prime-rl")
    model = MemoryModel(run)
    assert model.baseline(0).state.total == pytest.approx(16 * on_rank(run))
    layer = next(unit for unit in model.units[0][0].units if unit.role == "layer")
    assert model.counter.unit(layer).gathered == 2 * layer.weights.total


def test_layers_that_prime_rl_repeats_run_operator_by_operator() -> None:
    settings = {"plan__dp": 8, "plan__zero": 3, "batch__global": 8, "execution__framework": "prime-rl"}
    plain, repeated = (made("qwen3-8b", plan__recompute=recompute, **settings) for recompute in ("none", "full"))
    assert memory_profile_of(plain).compiled
    profile = memory_profile_of(repeated)
    assert not (profile.compiled or profile.fused_norm or profile.fused_activation)
    assert (profile.loss, profile.shards_alone) == ("upcast-and-held", True)


@pytest.mark.parametrize(("kind", "gradient"), [("none", 2), ("lora", 0)])
def test_a_table_that_embedding_and_head_share_stays_gathered_with_its_gradient(kind: str, gradient: int) -> None:
    settings = {"plan__dp": 8, "plan__zero": 3, "batch__global": 8, "adapters__kind": kind}
    model = MemoryModel(made("qwen3-4b", execution__framework="fsdp", **settings))
    (embedding, *_) = model.units[0][0].units
    table, found = embedding.weights.total, model.counter.unit(embedding)
    assert (found.gathered, found.throughout, found.throughout_backward) == (0, 2 * table, gradient * table)


@pytest.mark.parametrize(("zero", "bytes_each"), [(0, 0), (1, 0), (2, 2 + 4), (3, 2 + 4)])
def test_whole_gradients_wait_for_their_reduction_from_zero_2_on(zero: int, bytes_each: int) -> None:
    run = made("llama3-8b", plan__dp=8, plan__zero=zero, execution__fuse_gradients=False)
    unit = next(unit for unit in chunks_of_ranks(run)[0][0].units if unit.role == "layer")
    waiting = unreduced_bytes(run, memory_profile_of(run), unit, groups_of(run))
    assert waiting == bytes_each * unit.weights.total


def test_hybrid_sharding_divides_by_the_shard_group_alone() -> None:
    run = made("llama3-8b", plan__dp=16, plan__zero=1, plan__shard=8)
    state = MemoryModel(run).baseline(0).state
    assert state.optimizer == pytest.approx(12 * on_rank(run) / 8)


def test_experts_shard_over_their_own_group() -> None:
    run = made("mixtral-8x7b", plan__dp=16, plan__ep=8, plan__zero=1)
    weights = weights_of_chunks(chunks_of_ranks(run)[0])
    state = MemoryModel(run).baseline(0).state
    assert state.optimizer == pytest.approx(12 * (weights.dense / 16 + weights.experts / 2))


FP8_SHARDS = {"precision": "fp8", "execution__fp8_weights": "primary", "plan__dp": 8, "plan__zero": 3}
BYTES: list[tuple[dict[str, Any], tuple[float, int, int, float]]] = [
    ({}, (2, 4, 12, 0)),
    ({"execution__gradient_dtype": "bf16"}, (2, 2, 12, 0)),
    ({"execution__master_weights": False}, (2, 4, 4, 0)),
    ({"execution__optimizer": "muon"}, (2, 4, 8, 0)),
    ({"precision": "fp8"}, (2, 4, 12, 2)),
    ({"precision": "fp8", "cluster__hardware": "b200"}, (2, 4, 12, 1)),
    ({"precision": "fp8", "cluster__hardware": "b200", "execution__fp8_recipe": "mxfp8"}, (2, 4, 12, 2 * 33 / 32)),
    ({"precision": "nvfp4", "cluster__hardware": "b200"}, (2, 4, 12, 2 * 9 / 16)),
    ({"precision": "nvfp4", "cluster__hardware": "b200", "execution__framework": "nemo"}, (2, 2, 10, 2 * 9 / 16)),
    ({"precision": "mxfp4", "cluster__hardware": "mi355x"}, (2, 4, 12, 2 * 17 / 32)),
    ({"precision": "nvfp4", "cluster__hardware": "b200", "execution__framework": "torchtitan"}, (2, 4, 12, 0)),
    ({"precision": "fp8", "execution__fp8_weights": "primary"}, (2, 4, 12, 0)),
    ({"precision": "fp8", "execution__fp8_weights": "primary", "cluster__hardware": "b200"}, (1, 4, 12, 0)),
    (FP8_SHARDS, (1, 4, 12, 0)),
    (FP8_SHARDS | {"cluster__hardware": "b200", "execution__fp8_recipe": "mxfp8"}, (2 * 33 / 32, 4, 12, 0)),
    (
        {
            "precision": "fp8",
            "execution__fp8_recipe": "delayed",
            "execution__fp8_weights": "primary",
            "execution__master_dtype": "remainder",
        },
        (2, 4, 12, 0),
    ),
    ({"precision": "fp8", "execution__framework": "nemo"}, (2, 2, 12, 0)),
    ({"precision": "fp8", "execution__framework": "nemo", "execution__fp8_recipe": "blockwise"}, (2, 2, 12, 2)),
    ({"precision": "fp8", "execution__framework": "nemo", "execution__fp8_weights": "copies"}, (2, 2, 12, 2)),
    ({"execution__framework": "nemo"}, (2, 2, 10, 0)),
    ({"execution__master_dtype": "fp16", "execution__moment_dtype": "bf16"}, (2, 4, 6, 0)),
    ({"execution__moment_dtype": "fp8"}, (2, 4, 6, 0)),
    ({"precision": "tf32"}, (4, 4, 8, 0)),
    ({"execution__framework": "megatron-deepspeed", "precision": "fp16"}, (2, 2, 12, 0)),
    ({"execution__framework": "megatron-deepspeed"}, (2, 6, 12, 0)),
    ({"execution__framework": "torchtitan", "plan__zero": 3, "plan__dp": 2}, (4, 4, 8, 0)),
    ({"execution__framework": "torch"}, (2, 2, 4, 0)),
]


@pytest.mark.parametrize(("settings", "expected"), BYTES)
def test_bytes_a_parameter_follow_the_precision_and_the_framework(
    settings: dict[str, Any], expected: tuple[float, int, int, float]
) -> None:
    run = made("llama3-8b", **settings)
    each = bytes_per_parameter(run, memory_profile_of(run))
    assert (each.weights, each.gradients, each.optimizer, each.copies) == expected


def test_recipes_of_latent_attention_keep_16_bit_moments() -> None:
    run = made("deepseek-v3", execution__framework="nemo", plan__dp=8, plan__ep=8)
    assert bytes_per_parameter(run, memory_profile_of(run)).optimizer == 2 + 2 + 2
    stated = made("deepseek-v3", execution__framework="nemo", execution__moment_dtype="fp32", plan__dp=8, plan__ep=8)
    assert bytes_per_parameter(stated, memory_profile_of(stated)).optimizer == 2 + 4 + 4


def test_multi_token_prediction_is_named_apart_and_counts_among_no_ranks_layers() -> None:
    run = made("deepseek-v3")
    (chunks,) = chunks_of_ranks(run)
    (chunk,) = chunks
    assert [unit.name for unit in chunk.units][-4:] == ["head", "mtp_joining", "mtp_full_moe", "mtp_head"]
    assert chunk.layers == run.model.layers
