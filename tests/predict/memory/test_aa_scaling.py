"""The memory of Aleph Alpha's trainer: bf16 gradients, whole logits on every rank, joint query, key and value, fragmentation."""

from __future__ import annotations

import pytest

from predict import estimate
from predict.memory.estimate import MemoryEstimate
from predict.memory.profiles.aa_scaling import PROFILE
from tests.predict.workload.parallel_runs import made, spec

MODEL = spec("llama2-13b", 4)
TOKENS = 4096


def memory(framework: str = "aa-scaling", **settings: object) -> MemoryEstimate:
    return estimate(made(MODEL, **{"execution__framework": framework, **settings})).memory


def kept(result: MemoryEstimate, role: str) -> dict[str, float]:
    (found,) = (activations for unit, _, activations in result.units if unit.role == role)
    return dict(found.components)


def test_gradients_have_the_weights_dtype_and_exist_from_the_first_backward() -> None:
    rank = memory().worst
    assert rank.gradients <= rank.parameters == 2 * rank.elements
    assert memory("megatron-core").worst.gradients == 2 * rank.parameters


def test_every_tensor_rank_keeps_the_loss_of_all_logits() -> None:
    one, four = (kept(memory(plan__tp=tp), "head")["loss"] for tp in (1, 4))
    assert one == four == pytest.approx(4 * TOKENS * MODEL.vocab, rel=1e-3)  # log-probabilities in fp32


def test_the_last_stage_holds_the_logits_of_two_microbatches() -> None:
    (held,) = (buffer for buffer in memory().buffers if buffer.name == "held logits")
    assert held.size_bytes == 2 * 2 * TOKENS * MODEL.vocab
    first = memory(plan__pp=2, batch={"global": 2, "micro": 1, "seq_len": 64})
    names = {buffer.name for buffer in first.buffers}
    assert ("held logits" in names) == (first.worst.rank == 1)


def test_the_joint_product_of_query_key_and_value_stays_beside_the_rotated_ones() -> None:
    assert kept(memory(), "layer")["qkv"] - kept(memory("torch-eager"), "layer")["qkv"] == 2 * 2 * TOKENS * MODEL.hidden


def test_sequence_parallelism_keeps_the_gathered_inputs() -> None:
    layers = {
        name: kept(memory(name, plan__tp=4, plan__sp=True), "layer")["mlp"] for name in ("aa-scaling", "megatron-core")
    }
    gathered = 2 * TOKENS * MODEL.hidden * (1 - 1 / 4)
    silu = 2 * TOKENS * MODEL.ffn / 4  # Transformer Engine's activation keeps its inputs alone
    assert layers["aa-scaling"] - layers["megatron-core"] == pytest.approx(gathered + silu)


def test_fragments_do_not_fall_on_the_state() -> None:
    rank = memory().worst
    assert PROFILE.fragmentation is not None
    assert rank.slack == pytest.approx(PROFILE.fragmentation * (rank.activations + rank.working + rank.buffers))
    megatron = memory("megatron-core").worst
    assert megatron.slack == pytest.approx(0.048 * megatron.allocated, rel=0.01)
