"""The memory of Aleph Alpha's trainer: bf16 gradients, whole logits on every rank, joint query, key and value, fragmentation."""

from __future__ import annotations

import pytest

from predict import estimate
from predict.memory.estimate import MemoryEstimate, MemoryModel
from tests.predict.memory.counted_layers import PROFILES
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


def test_the_joint_product_and_the_tables_looked_up_stay_beside_the_rotated_queries_and_keys() -> None:
    own, eager = kept(memory(), "layer"), kept(memory("torch-eager"), "layer")
    assert own["qkv"] - eager["qkv"] == 2 * 2 * TOKENS * MODEL.hidden
    assert own["positions"] == 4 * 2 * TOKENS * MODEL.head_dim
    assert "positions" not in eager


def test_stages_hold_their_outputs_and_the_inputs_that_no_layer_keeps() -> None:
    def held(**settings: bool) -> list[float]:
        model = MemoryModel(made(MODEL, execution__framework="aa-scaling", plan__pp=2, **settings))
        own = [sum(model.counter.unit(unit).kept for unit in chunk.units) for (chunk,) in model.units]
        return [chunk.kept - units for (chunk,), units in zip(model.chunks, own, strict=True)]

    stream = 2 * TOKENS * MODEL.hidden
    assert held() == [stream, 0]
    assert held(execution__fuse_rms_norm=False) == [stream, stream]


def test_sequence_parallelism_keeps_the_gathered_inputs() -> None:
    layers = {
        name: kept(memory(name, plan__tp=4, plan__sp=True), "layer")["mlp"] for name in ("aa-scaling", "megatron-core")
    }
    gathered = 2 * TOKENS * MODEL.hidden * (1 - 1 / 4)
    silu = 2 * TOKENS * MODEL.ffn / 4  # Transformer Engine's activation keeps its inputs alone
    assert layers["aa-scaling"] - layers["megatron-core"] == pytest.approx(gathered + silu)


def test_fragments_are_of_tensor_parallelism_and_do_not_fall_on_the_state() -> None:
    rank, alone = (memory(plan__tp=tp).worst for tp in (2, 1))
    fragmentation = PROFILES["aa-scaling"].fragmentation
    assert fragmentation is not None
    assert rank.slack == pytest.approx(fragmentation * (rank.activations + rank.working + rank.buffers))
    assert alone.slack == pytest.approx(0.048 * (alone.activations + alone.working + alone.buffers))
    megatron = memory("megatron-core").worst
    assert megatron.slack == pytest.approx(0.048 * megatron.allocated, rel=0.01)
