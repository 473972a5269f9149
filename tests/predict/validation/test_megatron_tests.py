"""Measured memory of Megatron-LM's functional tests: what a row is read as, and how state and peak are compared."""

import pytest

from predict.layers.latent import LatentAttention
from predict.run.training_run import TrainingRun
from predict.validation.megatron_tests import run_of
from predict.validation.memory import compare_memory, figures, memory_classes
from predict.validation.published_row import NotExpressibleError, PublishedRow
from tests.predict.validation.published_rows import ROWS

TEST = ROWS["megatron"]


def read(**changes: str) -> TrainingRun:
    return run_of(PublishedRow(cells=TEST | changes))


def test_a_test_is_read_by_its_own_flags() -> None:
    run = read()
    assert (run.plan.pp, run.plan.vpp, run.plan.dp, run.plan.zero) == (4, 8, 2, 1)
    assert (run.plan.schedule, run.execution.fuse_gradients) == ("interleaved-1f1b", False)
    model = run.model
    assert (model.norm, model.rope, model.attention_bias, model.tied) == ("layer", False, True, False)
    assert (model.vocab, model.kv_heads, model.gated) == (131_200, 8, False)


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"distributed_optimizer": "0"}, "zero", 0),
        ({"pp": "8", "vpp": "", "dp": "1"}, "zero", 0),
        ({"fsdp": "megatron-fsdp optim_grads_params", "pp": "1", "vpp": "", "dp": "8"}, "zero", 3),
        ({"tp": "2", "dp": "1", "seq_parallel": "1"}, "sp", True),
        ({"recompute": "full", "recompute_method": "uniform", "recompute_layers": "1"}, "recompute", "full"),
        ({"vpp": "", "notes": "decoder-last-pipeline-num-layers=2; x=1"}, "last_stage_layers", 2),
        ({"layers": "6", "vpp": "2"}, "count_embedding", 1),
        ({"layers": "31", "notes": "account-for-loss-in-pipeline-split=1"}, "count_loss", 1),
        (
            {"recompute": "selective", "recompute_modules": "layernorm mlp moe_act"},
            "recompute_modules",
            "layernorm,mlp,moe_act",
        ),
        ({"n_gpus": ""}, "dp", 2),
    ],
)
def test_each_flag_of_the_plan_is_read(changes: dict[str, str], key: str, value: object) -> None:
    assert getattr(read(**changes).plan, key) == value


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"attention_backend": "unfused"}, "attention", "unfused"),
        ({"transformer_impl": "local"}, "attention", "unfused"),
        ({"notes": "grad-reduce-in-bf16=1"}, "gradient_dtype", "bf16"),
        ({"precision": "FP16"}, "gradient_dtype", "fp16"),
        ({"precision": "FP8", "fp8_recipe": "blockwise"}, "fp8_recipe", "blockwise"),
        ({"precision": "FP8", "fp8_recipe": "tensorwise"}, "fp8_weights", "copies"),
        ({"precision": "FP8", "fp8_recipe": "delayed", "notes": "fp8-param-gather=1"}, "fp8_weights", "primary"),
        ({"optimizer": "muon"}, "optimizer", "muon"),
        ({}, "dropout", True),
        ({"position": "rope"}, "dropout", False),
        ({"cp": "2", "pp": "2"}, "dropout", False),
        ({}, "fuse_loss", False),
        ({"notes": "cross-entropy-loss-fusion=1"}, "fuse_loss", True),
        ({}, "expert_products", "in_turn"),
        ({"notes": "moe-grouped-gemm=1"}, "expert_products", "per_expert"),
        ({}, "cuda_graphs", "none"),
        ({"notes": "cuda-graph-impl=transformer_engine; cuda-graph-scope=attn"}, "cuda_graphs", "layers"),
        ({"notes": "cuda-graph-impl=local; cuda-graph-scope=full_iteration"}, "cuda_graphs", "full"),
        ({"notes": "cuda-graph-impl=full_iteration"}, "cuda_graphs", "full"),
    ],
)
def test_each_flag_of_the_software_is_read(changes: dict[str, str], key: str, value: object) -> None:
    assert getattr(read(**changes).execution, key) == value


MIXTURE = {
    "experts": "8",
    "topk": "2",
    "moe_ffn": "1024",
    "shared_ffn": "512",
    "ep": "2",
    "pp": "1",
    "vpp": "",
    "dp": "8",
}


def test_a_mixture_is_read_with_its_sparse_layers() -> None:
    model = read(**MIXTURE, moe_layer_freq="([0]*2+[1]*30)").model
    assert [kind.sparse for kind in model.kinds()] == [False] * 2 + [True] * 30
    assert model.experts is not None
    assert (model.experts.count, model.experts.ffn, model.experts.shared_ffn) == (8, 1024, 512)
    assert sum(kind.sparse for kind in read(**MIXTURE, moe_layer_freq="2").model.kinds()) == 16
    assert all(kind.sparse for kind in read(**MIXTURE).model.kinds())


def test_experts_are_divided_by_tp_unless_a_flag_says_otherwise() -> None:
    divided = MIXTURE | {"tp": "2", "dp": "4", "seq_parallel": "1"}
    assert read(**divided).plan.etp == 2
    assert read(**divided, etp="1").plan.etp == 1


def test_gpus_that_are_not_stated_are_the_fewest_that_experts_fold_into() -> None:
    divided = MIXTURE | {"tp": "2", "dp": "", "n_gpus": "", "seq_parallel": "1", "ep": "4"}
    assert (read(**divided).plan.dp, read(**divided, etp="1").plan.dp) == (4, 2)


def test_latent_attention_is_read_by_its_ranks() -> None:
    latent = read(mla="q 192 kv 64 nope 16 rope 8 v 16").model.attention
    assert isinstance(latent, LatentAttention)
    assert (latent.q_rank, latent.kv_rank, latent.value_dim) == (192, 64, 16)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "hybrid"}, "kind: hybrid: the table states neither"),
        ({"n_gpus": "", "dp": ""}, "n_gpus: not stated, nor dp"),
        ({"vocab_padded": ""}, "vocab_padded: not published"),
        ({"attention_backend": "magic"}, "attention_backend: magic is not one of fused, flash, unfused"),
        (MIXTURE | {"moe_layer_freq": "([0]*2+[1]*29)"}, "is not a list of 32 layers"),
    ],
)
def test_a_test_that_cannot_be_expressed_says_why(changes: dict[str, str], why: str) -> None:
    with pytest.raises(NotExpressibleError, match=why):
        read(**changes)


def test_state_and_peak_are_those_of_the_last_rank() -> None:
    state, peak = compare_memory([PublishedRow(cells=TEST)])
    assert (state.row.figure, state.measured, peak.row.figure, peak.measured) == ("state", 24.8e9, "peak", 60.7e9)
    assert state.predicted.median < peak.predicted.median
    (first_stages, _) = compare_memory([PublishedRow(cells=TEST | {"tied_embedding": "1"})])
    assert first_stages.predicted.median == pytest.approx(state.predicted.median), "the head is held there either way"


def test_a_family_counts_once() -> None:
    alike = [PublishedRow(cells=TEST | {"row_id": str(place)}) for place in range(3)]
    other = PublishedRow(cells=TEST | {"row_id": "b", "family": "F1", "mem_allocated_bytes": "1e12"})
    compared = [one for one in compare_memory([*alike, other]) if one.row.figure == "state"]
    found = figures(["all"], compared)
    assert (found["rows"], found["families"]) == (4, 2)
    assert found["bias_percent"] == pytest.approx(100 * (compared[0].error + compared[-1].error) / 2)


def test_large_and_small_figures_are_distinguished() -> None:
    rows = [PublishedRow(cells=TEST), PublishedRow(cells=TEST | {"row_id": "b", "mem_allocated_bytes": "3.9e9"})]
    keys = [each["key"] for each in memory_classes(compare_memory(rows))]
    assert keys == [
        ["state", "allocated", "up to 4 GB"],
        ["state", "allocated", "above 4 GB"],
        ["peak", "allocated", "above 4 GB"],
    ]
