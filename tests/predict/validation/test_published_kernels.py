"""Tables that name attention and norm kernels in columns of their own, and list plans that ran out of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.run.training_run import TrainingRun
from predict.validation.published import compare
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import candidates
from tests.predict.validation.published_rows import written

LAYOUT = {
    "row_id": "a",
    "group": "llama-13b on 64",
    "model": "llama-13b",
    "layers": "40",
    "hidden": "5120",
    "ffn": "13824",
    "heads": "40",
    "kv_heads": "40",
    "vocab": "128000",
    "gated_mlp": "1",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "gpu": "A100-SXM",
    "gpu_mem_gb": "80",
    "precision": "BF16",
    "tp": "2",
    "pp": "2",
    "dp": "16",
    "mbs": "1",
    "gbs": "2048",
    "grad_accum": "128",
    "seq_len": "2048",
    "attn_kernel": "flash2",
    "rms_kernel": "1",
    "activation_checkpointing": "none",
    "seq_parallel": "",
    "zero": "1",
    "step_time_s": "27",
    "status": "ok",
}


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
        NotExpressibleError, match="attn_kernel: 'flash9' is not known; give one of flash2, flash, megatron, torch"
    ):
        run_of(tmp_path, attn_kernel="flash9")


def test_a_plan_that_ran_out_of_memory_has_no_time() -> None:
    (told,) = compare([PublishedRow(cells=LAYOUT | {"status": "oom", "step_time_s": ""})])
    assert told.why == "status: oom, so there is no time; `validate ranking` judges such rows"
