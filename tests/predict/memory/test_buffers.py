"""Workspaces, what a step leaves behind, and tensors that only some settings bring, each by its known size."""

from dataclasses import replace
from typing import Any

import pytest

from predict.memory.estimate import MemoryModel
from predict.run.training_run import TrainingRun
from sampling.units import MIB
from tests.predict.workload.parallel_runs import made, spec


def workspaces(run: TrainingRun) -> dict[str, float]:
    return {buffer.name: buffer.size_bytes / MIB for buffer in MemoryModel(run).baseline(0).tensors}


def allocated(run: TrainingRun) -> float:
    return MemoryModel(run).estimate(None, 0.0).ranks[-1].allocated


@pytest.mark.parametrize(
    ("changes", "torch_mib", "engine_mib"),
    [
        ({}, 2 * 32, 32),
        ({"cluster__hardware": "a100-sxm"}, 2 * 8.125, 4),
        ({"cluster__hardware": "a100-sxm", "execution__blas_workspace_mib": 32}, 2 * 32, 4),
        ({"model": "mixtral-8x7b", "plan__ep": 2, "plan__dp": 2}, 2 * 32, 5 * 32),
        ({"model": "mixtral-8x7b", "plan__ep": 2, "plan__dp": 2, "execution__expert_products": "in_turn"}, 2 * 32, 32),
        ({"plan__tp": 2, "plan__sp": True, "execution__overlap_tp": "pipelined"}, 2 * 32, 4 * 32),
        ({"execution__framework": "fsdp"}, 2 * 32, None),
    ],
)
def test_each_library_keeps_its_own_workspaces(
    changes: dict[str, Any], torch_mib: float, engine_mib: float | None
) -> None:
    found = workspaces(made(**{"model": "llama3-8b", **changes}))
    assert found["BLAS workspaces"] == torch_mib
    assert found.get("Transformer Engine workspaces") == engine_mib


def test_one_buffer_holds_the_heads_gathered_input_or_the_scores_of_megatrons_own_attention() -> None:
    def size(rank: int, **changes: Any) -> float:
        run = made("llama3-8b", plan__tp=2, plan__sp=True, plan__pp=2, **changes)
        found = {buffer.name: buffer.size_bytes for buffer in MemoryModel(run).baseline(rank).tensors}
        return found.get("global memory buffer", 0.0)

    tokens, model = 4096, spec("llama3-8b")
    assert (size(0), size(1)) == (0, 2 * tokens * model.hidden)
    scores = 2 * model.heads / 2 * tokens**2
    assert size(0, execution__framework="megatron-local") == size(1, execution__framework="megatron-local") == scores


def test_megatrons_own_layers_have_no_workspaces_of_transformer_engine() -> None:
    assert "Transformer Engine workspaces" not in workspaces(made("llama3-8b", execution__framework="megatron-local"))


def test_each_chunk_that_receives_its_input_keeps_it_and_its_gradient_between_steps() -> None:
    run = made("llama3-8b", plan__pp=4, plan__vpp=2, plan__schedule="interleaved-1f1b")
    tensor = 2 * run.batch.micro * run.batch.seq_len * run.model.hidden
    model = MemoryModel(run)
    assert [model.baseline(rank).left_behind / tensor for rank in range(4)] == [2, 4, 4, 4]


def test_what_is_left_between_steps_is_state_and_lasting_buffers() -> None:
    model = MemoryModel(made("llama3-8b", plan__pp=2))
    rank = model.baseline(1)
    transfers = next(buffer.size_bytes for buffer in rank.tensors if buffer.name == "pipeline transfers")
    assert rank.between_steps == rank.state.total + rank.buffer_bytes - transfers + rank.left_behind
    assert model.estimate(None, 0.0).ranks[1].between_steps == rank.between_steps


@pytest.mark.parametrize(("stages", "tensors"), [(1, 0), (2, 2)])
def test_an_activation_and_a_gradient_are_in_transfer_between_stages(stages: int, tensors: int) -> None:
    run = made("llama3-8b", plan__pp=stages)
    found = workspaces(run).get("pipeline transfers", 0.0)
    assert found * MIB == tensors * 2 * run.batch.micro * run.batch.seq_len * run.model.hidden


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_masters_hold_fp32_copies_of_16_bit_gradients_until_the_next_step(dtype: str) -> None:
    sharded = {"plan__dp": 4, "plan__zero": 1, "precision": dtype}
    rank = MemoryModel(made("llama3-8b", execution__gradient_dtype=dtype, **sharded)).baseline(0)
    assert rank.left_behind == rank.update_working == 4 * rank.elements / 4
    assert MemoryModel(made("llama3-8b", **sharded)).baseline(0).left_behind == 0


@pytest.mark.parametrize(("precision", "copied"), [("fp16", True), ("bf16", False)])
def test_zero_copies_fp16_gradients_and_adds_up_those_of_bf16_in_fp32_at_once(precision: str, copied: bool) -> None:
    run = made("llama3-8b", execution__framework="megatron-deepspeed", precision=precision)
    assert bool(MemoryModel(run).baseline(0).update_working) is copied


def test_an_optimizer_that_takes_16_bit_gradients_makes_no_copies() -> None:
    lean = {"execution__gradient_dtype": "bf16", "execution__master_dtype": "remainder"}
    assert MemoryModel(made("llama3-8b", plan__dp=4, plan__zero=1, **lean)).baseline(0).left_behind == 0


def test_expandable_segments_leave_less_unused() -> None:
    plain, expandable = (
        MemoryModel(made("llama3-8b", execution__allocator=each)) for each in ("segments", "expandable")
    )
    assert expandable.baseline(0).slack_share < plain.baseline(0).slack_share
    assert MemoryModel(made("llama3-8b", execution__framework="nemo")).baseline(0).slack_share == pytest.approx(0.02)


def test_a_fused_loss_takes_a_further_fp32_tensor_of_logits() -> None:
    small = {"layers": 1, "batch__global": 1}
    run = made("llama3-8b", **small)
    logits = run.batch.seq_len * run.model.vocab
    more = allocated(made("llama3-8b", **small, execution__fuse_loss=True)) - allocated(run)
    assert more == pytest.approx(4 * logits, rel=0.01)


@pytest.mark.parametrize(("plan", "copies"), [({}, 0), ({"plan__pp": 2}, 1)])
def test_further_tokens_need_an_embedding_where_the_rank_has_none(plan: dict[str, Any], copies: int) -> None:
    def elements(mtp_layers: int) -> int:
        run = made(replace(spec("llama3-8b"), mtp_layers=mtp_layers), **plan)
        return MemoryModel(run).baseline(run.plan.pp - 1).elements

    model = spec("llama3-8b")
    layer = elements(2) - elements(1)
    assert elements(1) - elements(0) == layer + copies * model.hidden * model.vocab


def test_a_compiled_loss_keeps_the_logits_alone() -> None:
    settings = {"execution__framework": "torchtitan", "plan__zero": 3, "plan__dp": 8}

    def loss(**changes: Any) -> float:
        model = MemoryModel(made("llama3-8b", **settings, **changes))
        return next(
            model.counter.unit(unit).activations for unit in model.units[0][0].units if unit.role == "head"
        ).components["loss"]

    assert loss(execution__fuse_loss=False) / loss() == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize(("recipe", "item"), [("tensorwise", 1), ("rowwise", 2)])
def test_layers_are_gathered_in_fp8_where_a_tensor_has_one_scale(recipe: str, item: int) -> None:
    settings = {"execution__framework": "torchtitan", "plan__zero": 3, "plan__dp": 8, "precision": "fp8"}
    model = MemoryModel(made("llama3-8b", **settings, execution__fp8_recipe=recipe))
    embedding, layer = model.units[0][0].units[:2]
    assert model.counter.unit(layer).gathered == item * layer.weights.total
    assert model.counter.unit(embedding).gathered == 2 * embedding.weights.total


def test_megatrons_fsdp_makes_transposes_of_gathered_rows_for_a_backward_alone() -> None:
    settings = {"plan__zero": 3, "plan__dp": 8, "precision": "fp8", "execution__fp8_weights": "primary"}
    hopper, blackwell = (
        MemoryModel(made("llama3-8b", **settings, cluster__hardware=gpu)) for gpu in ("h100-sxm", "b200")
    )
    layer = hopper.units[0][0].units[1]
    assert hopper.counter.unit(layer).gathered == layer.weights.total == blackwell.counter.unit(layer).gathered
    transposed = hopper.counter.unit(layer).backward_working - blackwell.counter.unit(layer).backward_working
    assert transposed == layer.weights.total
