"""Published runs held against predictions: what a row may say, what it is translated to, how errors are stated."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from predict.run.calibration_file import read_calibration
from predict.run.calibration_terms import bounds
from predict.validation import published
from predict.validation.compared import Refused
from predict.validation.memory import compare_memory, memory_summary
from predict.validation.published import compare
from predict.validation.published_row import NotExpressibleError, PublishedRow, read_rows
from predict.validation.published_runs import candidates
from predict.validation.published_scores import published_json
from sampling.errors import ConfigError
from tests.predict.command import Command
from tests.predict.validation.published_rows import DENSE, MIXTURE, row, written


def test_a_published_step_is_predicted_within_its_interval() -> None:
    (found,) = compare([row()])
    assert found.predicted is not None
    assert found.covered
    assert abs(found.error) < 0.05


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tp": "0"}, "tp: 0"),
        ({"pp": "nan"}, "pp: nan"),
        ({"layers": "inf"}, "layers: inf"),
        ({"hidden": "-1"}, "hidden: -1"),
        ({"mbs": "0.3"}, "mbs: 0.3"),
        ({"heads": ""}, "heads: not published"),
        ({"n_gpus": "12"}, "dp: tp"),
        ({"gpu": "H1000"}, "gpu: H1000 is not in configs/hardware"),
        ({"step_time_s": "-3"}, "step_time_s: neither"),
        ({"step_time_s": "nan"}, "step_time_s: neither"),
        ({"precision": "NVFP4"}, "precision: .* does not compute in nvfp4"),
        ({"framework": "Caffe"}, "framework: Caffe"),
        ({"offload": "cpu"}, "offload: cpu"),
        ({"heads": "63"}, "head_dim: not published"),
        ({"gated_mlp": ""}, r"gated_mlp: not published; give 1 \(SwiGLU"),
        ({"topk": "2"}, "experts: not published, although topk is"),
        ({"kind": "moe"}, "experts: not published, although kind is moe"),
        ({"experts": "8"}, "moe_ffn: not published"),
        ({"experts": "8", "topk": "2", "moe_ffn": "64", "moe_layer_note": "some"}, "moe_layer_note: some names no"),
        ({"layers": ""}, "layers: not published, although hidden is"),
        ({"kind": "hybrid"}, "kind: hybrid"),
        ({"kind": "mla"}, "attn: the ranks of latent attention"),
        ({"position": "none"}, "position: none"),
        ({"zero_fsdp": "FDSP"}, "zero_fsdp: FDSP is not known"),
    ],
)
def test_a_row_that_cannot_be_expressed_says_why(changes: dict[str, str], why: str) -> None:
    with pytest.raises(NotExpressibleError, match=why):
        candidates(row(**changes))


def test_activations_on_the_host_are_those_of_all_layers_or_of_so_many() -> None:
    (whole,) = candidates(row(offload="activations", framework="prime-rl", gpu="H100")).runs
    assert (whole.offload.activation_share, whole.offload.overlap_activations) == (1.0, False)
    assert whole.plan.recompute == "full"  # what it offloads is the inputs of layers that it repeats
    (some,) = candidates(row(offload="cpu_offload_layers=8", layers="32")).runs
    assert (some.offload.activation_share, some.offload.overlap_activations) == (0.25, True)


def test_notes_name_the_loss_of_reinforcement_learning() -> None:
    tasks = [candidates(row(notes=notes)).runs[0].tuning.task for notes in ("rl loss, synthetic data", "sft loss")]
    assert tasks == ["policy", "sft"]


def test_one_bad_row_leaves_the_others_predicted() -> None:
    found = published_json(compare([row(tp="0"), row()]))["rows"]
    assert [each["status"] for each in found] == ["not_expressible", "predicted"]


@pytest.mark.parametrize("column", ["source_id", "row_id"])
def test_a_prediction_does_not_depend_on_whose_table_it_is(column: str) -> None:
    mine, other = compare([row(), row(**{column: "somebody-else"})])
    assert mine.predicted == other.predicted


def test_unpublished_recomputation_is_a_mixture_and_widens() -> None:
    found = candidates(PublishedRow(cells=MIXTURE))
    assert [run.plan.recompute for run in found.runs] == ["none", "selective"]
    assert found.assumed[0] == "recomputation was not published"
    assert found.runs[0].execution.fp8_recipe == "mxfp8"


@pytest.mark.parametrize(
    ("changes", "recompute", "compiled"),
    [
        ({"date": "2024-12", "framework": "torchtitan + torch.compile"}, "ops", False),
        ({"date": "2025-06", "framework": "torchtitan + torch.compile"}, "ops", True),
        ({"date": "2025-06", "framework": "torchtitan"}, "ops", False),
        ({"framework": "torchtitan", "hfu_pct": "60", "mfu_pct": "50"}, "full", False),
        ({"framework": "PyTorch FSDP1 + torch.compile", "hfu_pct": "60", "mfu_pct": "50"}, "full", False),
    ],
)
def test_torchs_selective_recomputation_and_its_loss_are_read(
    changes: dict[str, str], recompute: str, compiled: bool
) -> None:
    run = candidates(row(recompute="selective", **changes)).runs[0]
    assert (run.plan.recompute, run.execution.fuse_loss) == (recompute, compiled)


def test_other_tables_names_of_columns_are_read(tmp_path: Path) -> None:
    names = {"row_id": "run_id", "mbs": "micro_batch", "step_time_s": "same_run_typical_s", "seq_len": "seq"}
    renamed = {names.get(column, column): text for column, text in DENSE.items()}
    (one,) = read_rows(written(tmp_path / "runs.csv", renamed))
    assert compare([one])[0].predicted == compare([row()])[0].predicted


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "holds no rows"),
        (b"row_id,layers\n1,2\n", "lacks the columns gpu, n_gpus, precision, seq_len"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=fault):
        list(read_rows(path))


def test_a_calibration_finds_slower_products_within_its_bounds(tmp_path: Path, command: Command) -> None:
    sizes = [("4", "1.42"), ("8", "2.84"), ("12", "4.26"), ("16", "5.68")]
    slow = [
        DENSE | {"row_id": f"{batch}-{micro}", "gbs": batch, "mbs": micro, "step_time_s": str(1.3 * float(seconds))}
        for batch, seconds in sizes
        for micro in ("4", "2", "1")
    ]
    table, terms = written(tmp_path / "runs.csv", *slow), tmp_path / "terms.yml"
    arguments = ["--truth", str(table), "--calibrate-on", str(table), "--calibration", str(terms)]
    before = command.json("validate", "published", "--truth", str(table))["summary"][0]["mean_error_percent"]
    content = command.json("validate", "published", *arguments)
    assert content["summary"][0]["mean_error_percent"] < before
    fitted = asdict(read_calibration(terms).terms)
    assert all(bounds()[name][0] <= value <= bounds()[name][1] for name, value in fitted.items())
    (source,) = command.json("calibrate", "--few-shot", "2", "--truth", str(table))["sources"]
    assert source["after"]["mean_error_percent"] < source["before"]["mean_error_percent"]
    assert source["before"]["rows"] == content["summary"][0]["rows"] - 2
    (source,) = command.json("calibrate", "--few-shot", "0", "--truth", str(table))["sources"]
    assert {**source["before"], "key": None} == {**source["after"], "key": None}


def test_measured_peaks_are_judged_by_their_own_counter() -> None:
    peaks = [
        row(peak_mem_gib="40", mem_note="max_allocated over ranks; reserved 42"),
        row(peak_mem_gib="42", mem_note="max over GPUs (metric: peak reserved GiB)"),
        row(peak_mem_gib="50", mem_note="max GB on first nodes (nvidia-smi snapshot)"),
        row(peak_mem_gib="-5"),
        row(peak_mem_gib="40", mem_counter="guess"),
        row(),
    ]
    found = compare_memory(peaks)
    assert [one.row.counter for one in found] == ["allocated", "reserved", "nvidia-smi", "nvidia-smi", "guess"]
    assert found[2].row.size == 50e9
    assert [isinstance(one, Refused) for one in found] == [False, False, False, True, True]
    allocated, reserved, device = (one.predicted.median for one in found[:3])
    assert allocated <= reserved <= device
    assert sum(each["rows"] for each in memory_summary(found)) == 3


def test_a_peak_called_fits_that_was_above_the_device_is_counted() -> None:
    (found,) = compare_memory([row(peak_mem_gib="95", mem_note="max_allocated")])
    assert found.wrongly_fits == (found.verdict == "FITS")


def test_without_a_table_the_runs_that_ship_are_judged_and_stderr_says_which(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "SHIPPED_RUNS", written(tmp_path / "runs.csv", DENSE))
    answer = command.run("validate", "published", "--json")
    assert "these are the runs that ship" in answer.err and "--truth" in answer.err
    assert json.loads(answer.out)["summary"][0]["rows"] == 1
