"""Rows of published tables become runs: chunks, kernels and mixtures as stated, else as their frameworks do by default."""

from pathlib import Path

import pytest

from predict.run.stages import layers_of_ranks
from predict.run.training_run import TrainingRun
from predict.validation.published import compare
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.published_software import stack_of
from tests.predict.validation.published_rows import DENSE, MIXTURE, ROWS, written

PIPELINE = DENSE | {"n_gpus": "64", "pp": "8", "gbs": "64", "mbs": "1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"framework": "NeMo"}, {6, 3}),  # 48 layers over 8 ranks: 1 or 2 layers a chunk, 4 do not divide them
        ({"framework": "NeMo", "vpp": "2"}, {2}),
        ({"framework": "NeMo", "pp": "1", "n_gpus": "8"}, {1}),
        ({"framework": "Megatron-LM"}, {1}),
        ({"framework": "Megatron-LM", "pp_schedule": "1F1B interleaved"}, {6, 3}),
        ({"framework": "NeMo", "layers": "50"}, {1}),  # neither 50 nor 52 layers divide by 8
    ],
)
def test_chunks_that_were_not_published_are_of_usual_sizes(given: dict[str, str], expected: set[int]) -> None:
    found = candidates(PublishedRow(cells=PIPELINE | given))
    assert {run.plan.vpp for run in found.runs} == expected
    open_ = "vpp" not in given and (given.get("pp") != "1")
    assert any(phrase.startswith("vpp: not published") for phrase in found.assumed) == open_


# Tables that name attention and norm kernels in columns of their own, and list plans that ran out of memory.


LAYOUT, DEEPSEEK = ROWS["layout"], ROWS["deepseek"]


def run_of(tmp_path: Path, **changes: str) -> TrainingRun:
    (row,) = read_rows(written(tmp_path / "layouts.csv", LAYOUT | changes))
    (run,) = candidates(row, timed=False).runs
    return run


def test_a_layout_is_read_as_its_table_means_it(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert run.execution.framework == "aa-scaling"
    assert (run.plan.tp, run.plan.pp, run.plan.dp, run.plan.zero, run.plan.sp) == (2, 2, 16, 1, False)
    assert (run.plan.recompute, run.batch.global_, run.model.vocab) == ("none", 2048, 128_000)
    assert run.cluster.gpu.memory_gib == 80
    assert run_of(tmp_path, seq_parallel="1").plan.sp
    assert run_of(tmp_path, activation_checkpointing="full").plan.recompute == "full"


@pytest.mark.parametrize(
    ("kernel", "attention", "fuse_softmax"),
    [("flash", "fa1", True), ("flash2", "fa2", True), ("megatron", "unfused", True), ("torch", "unfused", False)],
)
def test_each_attention_kernel_is_a_setting(tmp_path: Path, kernel: str, attention: str, fuse_softmax: bool) -> None:
    execution = run_of(tmp_path, attn_kernel=kernel).execution
    assert (execution.attention, execution.fuse_softmax) == (attention, fuse_softmax)


def test_the_norm_kernel_is_a_setting(tmp_path: Path) -> None:
    assert run_of(tmp_path).execution.fuse_rms_norm
    assert not run_of(tmp_path, rms_kernel="0").execution.fuse_rms_norm


def test_an_unknown_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NotExpressibleError,
        match="attn_kernel: 'flash9' is not known; give one of flash, flash2, flash3, flash4, te, cudnn, sdpa, flex, triton, megatron, torch",
    ):
        run_of(tmp_path, attn_kernel="flash9")


def test_a_plan_that_ran_out_of_memory_has_no_time() -> None:
    (compared,) = compare([PublishedRow(cells=LAYOUT | {"status": "oom", "step_time_s": ""})])
    assert compared.why == "status: oom, so there is no time; `validate ranking` judges such rows"


# Published mixtures: what their tables say of exchange, graphs and ranks, and what stands for what they leave open.

BRIDGE = {"framework": "Megatron-Bridge (Megatron-Core)", "n_gpus": "64", "ep": "64", "recompute": "none"}


def row(**changes: str) -> PublishedRow:
    return PublishedRow(cells=MIXTURE | {"moe_layer_note": "all layers MoE", "gbs": "64", "mbs": "1"} | changes)


@pytest.mark.parametrize(
    ("changes", "dispatch"),
    [
        ({"moe_dispatch": "HybridEP"}, "hybridep"),
        ({"moe_dispatch": "DeepEP"}, "deepep"),
        (BRIDGE | {"date": "25.09"}, "deepep"),
        (BRIDGE | {"date": "25.07"}, "alltoall"),
        (BRIDGE | {"date": "25.09", "ep": "8"}, "alltoall"),
        (BRIDGE | {"date": "25.09", "gpu": "GB200", "gpus_per_node": "4", "intra_node": "NVL72 domain"}, "alltoall"),
    ],
)
def test_the_exchange_is_read_or_that_of_recipes_where_experts_span_nodes(
    changes: dict[str, str], dispatch: str
) -> None:
    assert candidates(row(**changes)).runs[0].execution.dispatch == dispatch


@pytest.mark.parametrize(
    ("text", "graphs"),
    [
        ("", "none"),
        *((text, "none") for text in ("none", "False", "0", "off", "no", "none:[]", "none:full_iteration")),
        ("attn moe_router", "layers"),
        ("transformer_engine:['attn', 'moe_router', 'moe_preprocess']", "layers"),
        *((text, "full") for text in ("full iteration", "full_iteration:[]", "local:full_iteration")),
    ],
)
def test_graphs_are_read(text: str, graphs: str) -> None:
    assert candidates(row(cuda_graph=text)).runs[0].execution.cuda_graphs == graphs


@pytest.mark.parametrize(
    ("given", "in_fp8"),
    [
        ({"precision": "MXFP8"}, True),
        ({"precision": "MXFP8", "cuda_graph": "attn moe_router"}, False),
        ({"precision": "MXFP8", "framework": "Megatron-LM"}, False),
        ({"precision": "bf16"}, False),
        ({"precision": "FP8"}, False),
    ],
)
def test_recipes_that_graph_the_whole_step_attend_in_fp8(given: dict[str, str], in_fp8: bool) -> None:
    graphed = row(
        **BRIDGE | {"gpu": "B200", "cuda_graph": "full_iteration:[]", "overlap_flags": "moe_a2a_overlap=True"} | given
    )
    assert {one.execution.fp8_attention for one in candidates(graphed).runs} == {in_fp8}


def test_four_bits_and_adapters_attend_in_fp8_where_the_step_is_a_graph() -> None:
    dense = {"framework": "NeMo / Megatron-Core", "gpu": "B200", "cuda_graph": "full_iteration", "precision": "NVFP4"}
    assert candidates(row(**dense)).runs[0].execution.fp8_attention
    assert not candidates(row(**dense | {"precision": "FP8"})).runs[0].execution.fp8_attention
    assert candidates(row(**dense | {"precision": "FP8", "task": "lora"})).runs[0].execution.fp8_attention
    rings = row(**dense | {"n_gpus": "128", "cp": "2"})
    assert not candidates(rings).runs[0].execution.fp8_attention


@pytest.mark.parametrize(
    ("date", "stack"),
    [("25.09", "2025-09"), ("26.04.01", "2026-04"), ("2025-06-10", "2025-06"), ("2024", ""), ("", "")],
)
def test_the_month_of_the_software_is_that_of_its_container(date: str, stack: str) -> None:
    assert stack_of(row(date=date)) == stack


@pytest.mark.parametrize(
    ("given", "kernel"),
    [
        ({"date": "2024-08-26"}, "fa2"),
        ({"date": "2024-09-02"}, "best"),
        ({"date": ""}, "best"),
        ({"date": "2024-08-26", "attn_kernel": "megatron"}, "unfused"),
        ({"date": "2024-08-26", "framework": "Megatron-LM"}, "best"),
    ],
)
def test_nemos_launcher_ran_flash_attention_2_until_september_2024(given: dict[str, str], kernel: str) -> None:
    assert candidates(row(**BRIDGE | {"framework": "NeMo"} | given)).runs[0].execution.attention == kernel


@pytest.mark.parametrize(("date", "fused"), [("2025-09", False), ("2025-10", True), ("", False)])
def test_an_eager_norm_is_one_kernel_since_torch_2_9(date: str, fused: bool) -> None:
    (eager,) = {one.execution.fuse_rms_norm for one in candidates(row(framework="torchtitan", date=date)).runs}
    assert eager is fused


def test_a_recent_recipe_that_is_silent_may_be_overlapped_and_graphed() -> None:
    open_row = row(**BRIDGE | {"date": "26.08", "recompute": "", "gpu": "B200"})
    found = candidates(open_row)
    assert {(one.execution.overlap_ep, one.execution.cuda_graphs) for one in found.runs} == {
        ("none", "none"),
        ("microbatch", "full"),
    }
    assert "overlap of the exchange and graphs not published" in found.assumed
    assert {one.execution.dispatch for one in found.runs} == {"deepep"}
    rack = open_row.cells | {"gpu": "GB200", "gpus_per_node": "4", "intra_node": "NVL72 domain"}
    assert {one.execution.dispatch for one in candidates(PublishedRow(cells=rack)).runs} == {"hybridep"}
    graphed = candidates(row(**BRIDGE | {"date": "26.08", "cuda_graph": "full iteration", "gpu": "B200"}))
    assert {(one.execution.overlap_ep, one.execution.cuda_graphs) for one in graphed.runs} == {
        ("none", "full"),
        ("microbatch", "full"),
    }
    assert len(candidates(row(**BRIDGE | {"date": "26.08", "recompute": ""})).runs) == 2
    assert len(candidates(row(**BRIDGE | {"date": "26.02", "recompute": "", "gpu": "B200"})).runs) == 2


def test_sharded_mixtures_reduce_gradients_in_either_dtype() -> None:
    runs = candidates(row(framework="NeMo AutoModel FSDP", recompute="none", zero_fsdp="FSDP2", precision="bf16")).runs
    assert [run.execution.gradient_dtype for run in runs] == ["fp32", "bf16"]


def test_dp_may_count_the_ranks_that_hold_the_same_experts() -> None:
    (run, *_) = candidates(row(n_gpus="64", ep="8", dp="8", gbs="64")).runs
    assert (run.plan.dp, run.plan.ep) == (64, 8)


def test_a_mixture_by_its_name_leaves_as_much_open_as_one_by_its_sizes() -> None:
    recent = BRIDGE | {"date": "26.08", "gpu": "GB200", "gpus_per_node": "4", "intra_node": "NVL72 domain"}
    named = dict.fromkeys(
        ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "experts", "topk", "moe_ffn"), ""
    )
    by_name = candidates(row(**recent, **named, model="qwen3-30b-a3b"))
    assert len(by_name.runs) == len(candidates(row(**recent)).runs) == 2
    assert "overlap of the exchange and graphs not published" in by_name.assumed


@pytest.mark.parametrize(
    ("name", "sizes", "normed", "scaled"),
    [
        (
            "qwen3_30b_a3b",
            {"layers": "48", "hidden": "2048", "heads": "32", "kv_heads": "4", "head_dim": "128"},
            True,
            False,
        ),
        (
            "gpt_oss_120b",
            {"layers": "36", "hidden": "2880", "heads": "64", "kv_heads": "8", "head_dim": "64"},
            False,
            True,
        ),
        (
            "qwen3_30b_a3b",
            {"layers": "8", "hidden": "2048", "heads": "32", "kv_heads": "4", "head_dim": "128"},
            False,
            False,
        ),
    ],
)
def test_parts_of_attention_that_no_table_states_are_those_of_the_model_of_that_name_and_shape(
    name: str, sizes: dict[str, str], normed: bool, scaled: bool
) -> None:
    model = candidates(row(model=name, **sizes)).runs[0].model
    assert (model.qk_norm, model.scaled_rope) == (normed, scaled)


# Layers of multi-token prediction, and the layouts and exchanges that recipes of mixtures have.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 1),  # as NeMo's recipes train it
        ({"framework": "torchtitan"}, 0),
        ({"framework": "torchtitan", "mtp_layers": "1"}, 1),
        ({"notes": "variant: w/o MTP"}, 0),
        ({"framework": "torchtitan", "notes": "tuned; MTP depth 1"}, 1),
        # 2.50e11 and 2.60e11 FLOPs of a token
        ({"tflops_per_gpu": "961", "tflops_kind": "model", "tokens_per_s_per_gpu": "3848"}, 0),
        ({"tflops_per_gpu": "163.7", "tflops_kind": "model", "tokens_per_s_total": "161195"}, 1),
        ({"tflops_per_gpu": "961", "tflops_kind": "hardware", "tokens_per_s_per_gpu": "3848"}, 1),
        ({"pp": "2", "vpp": "8", "pp_schedule": "1F1B interleaved layout=Et*4|(t*4|)*14tL"}, 0),
        # far from both counts: another convention, or another model
        ({"tflops_per_gpu": "1100", "tflops_kind": "model", "tokens_per_s_per_gpu": "3848"}, 1),
        (
            {
                "framework": "torchtitan",
                "tflops_per_gpu": "1100",
                "tflops_kind": "model",
                "tokens_per_s_per_gpu": "3848",
            },
            0,
        ),
        ({"model": "mixture"}, 0),
        ({"model": "mixture", "notes": "w/ MTP"}, 1),
    ],
)
def test_multi_token_prediction_is_as_the_row_says_else_as_recipes_have_it(
    given: dict[str, str], expected: int
) -> None:
    assert candidates(PublishedRow(cells=DEEPSEEK | given)).runs[0].model.mtp_layers == expected


def test_layers_of_multi_token_prediction_that_a_row_leaves_open_are_among_what_is_assumed() -> None:
    def assumed(**given: str) -> bool:
        found = candidates(PublishedRow(cells=DEEPSEEK | given)).assumed
        return "mtp_layers: not published, taken as 1" in found

    assert assumed()
    assert not assumed(mtp_layers="1")
    assert not assumed(notes="w/ MTP")
    assert not assumed(notes="w/o MTP")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pp": "4", "vpp": "4"}, "E(t*4|)*15tmL"),
        ({"pp": "16"}, "E(t*4|)*15tmL"),
        ({"pp": "8", "vpp": "4"}, "Et|(t*2|)*30mL"),
        ({"pp": "16", "framework": "Megatron-LM"}, ""),
        ({"pp": "16", "layers": "64"}, ""),
    ],
)
def test_recipes_of_mixtures_fill_all_stages_but_the_last(given: dict[str, str], expected: str) -> None:
    run = candidates(PublishedRow(cells=DEEPSEEK | given)).runs[0]
    assert layers_of_ranks(run)
    assert run.plan.layout == expected.replace("E(t*4|)*15", "Et*4|(t*4|)*14")


def test_attention_with_sinks_exchanges_heads_under_transformer_engine() -> None:
    sinks = MIXTURE | {
        "model": "gpt-oss-20b",
        "layers": "24",
        "hidden": "2880",
        "heads": "64",
        "kv_heads": "8",
        "head_dim": "64",
        "cp": "4",
    }

    def method(**changes: str) -> str:
        return candidates(PublishedRow(cells=sinks | changes)).runs[0].plan.cp_method

    assert method() == "all_to_all"
    assert method(framework="torchtitan") == "ring"
    assert method(model="mixture") == "ring"
