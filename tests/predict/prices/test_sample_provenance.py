"""Whose rows an answer rests on: said first, in text and in JSON, and never called measured where they are another CPU's."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from predict import SamplesError, one_batch
from predict.prices import sample_provenance as whose_rows
from predict.run.calibration_file import calibration_text
from predict.run.calibration_terms import TERMS, CalibratedRun, Calibration, Posterior
from regressors.train import train
from sampling.files.places import DATA_VARIABLE, SHIPPED_DATA
from sampling.hardware.cluster import load_cluster
from sampling.store import profiles
from sampling.store.profiles import OWN, SHIPPED, profile_in_use
from tests.predict.command import Command
from tests.regressors.few_trees import few_trees

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "configs" / "runs" / "demo.yml")
COMMANDS = [["one-batch", DEMO], ["memory", DEMO], ["schedule", DEMO, "--schedule", "1f1b,afab"]]
STAND_IN = f"No profile {OWN!r} is fitted here: the rows of {SHIPPED} stand in, taken on AMD EPYC"


@pytest.mark.usefixtures("on_the_shipped_cpu")
def test_on_the_same_cpu_the_shipped_rows_are_measured_and_said_to_stand_in() -> None:
    prediction = one_batch(DEMO, require_measured=True)
    assert prediction.sources["measured"] == pytest.approx(1)
    (note,) = prediction.provenance["notes"]
    assert "the CPU of this machine too" in note


def test_on_another_cpu_the_same_times_are_transferred_and_wider(
    on_another_cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = one_batch(DEMO)
    assert there.sources["transferred"] == pytest.approx(1)
    assert on_another_cpu in there.provenance["notes"][0]
    with pytest.raises(SamplesError, match=r"100 % transferred.*make sample RUNS"):
        one_batch(DEMO, require_measured=True)
    monkeypatch.setattr(whose_rows, "cpu_name", lambda: there.provenance["samples"]["provenance"]["device"]["name"])
    here = one_batch(DEMO)
    assert there.median_us == here.median_us
    assert there.step_time.high_us > 1.5 * here.step_time.high_us
    assert there.step_time.low_us < here.step_time.low_us


def test_a_cpu_without_rows_is_known_no_better_than_by_rows_of_another(on_another_cpu: str) -> None:
    nobody_sampled, of_another = one_batch(DEMO, ["cluster.profile=nobody-sampled"]), one_batch(DEMO)
    assert nobody_sampled.is_analytic and on_another_cpu in of_another.provenance["notes"][0]
    assert nobody_sampled.step_time.half_width_log >= of_another.step_time.half_width_log
    assert max(nobody_sampled.unknowns, key=nobody_sampled.unknowns.__getitem__) == "stated peaks and links of this CPU"


def test_layers_timed_here_leave_the_transfer_to_the_rest(on_another_cpu: str) -> None:
    whole = one_batch(DEMO).unknowns["rows of another CPU"]
    timed_here = one_batch(DEMO)
    timed_here.__dict__["sources"] = {"measured": 0.97, "extrapolated": 0.0, "transferred": 0.03, "analytic": 0.0}
    assert timed_here.unknowns["rows of another CPU"] == pytest.approx(0.03 * whole)


def test_work_that_no_rows_cover_is_as_uncertain_as_stated_peaks_of_a_cpu_and_of_no_gpu() -> None:
    sampled = one_batch(DEMO)
    sampled.__dict__["sources"] = {"measured": 0.9, "extrapolated": 0.0, "transferred": 0.0, "analytic": 0.1}
    assert sampled.unknowns["stated peaks and links of this CPU"] == pytest.approx(0.1 * math.log(2))
    assert sampled.composition_error > 0.1 * math.log(2)
    assert "stated peaks and links of this CPU" not in one_batch(DEMO.replace("demo", "llama3-70b-64xh100")).unknowns


@pytest.fixture(scope="module")
def fitted_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a profile this-machine of one operator alone in one phase, sampled on the CPU of the shipped rows and
    fitted."""
    data = tmp_path_factory.mktemp("data")
    shipped, samples = SHIPPED_DATA / "samples" / SHIPPED, data / "samples" / OWN
    samples.mkdir(parents=True)
    shutil.copy(shipped / "manifest.json", samples)
    rows = pd.read_parquet(shipped / "embedding.parquet")
    rows[(rows.phase == "forward") & (rows.threads == 1)].to_parquet(samples / "embedding.parquet", index=False)
    with few_trees():
        train(
            samples=samples,
            output=data / "regressors" / OWN,
            fitted_at="2026-01-01",
            jobs=1,
            progress=lambda *_: None,
            wanted=("roofline",),
        )
    return data


@pytest.fixture
def few_own_rows(fitted_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_the_shipped_cpu: None) -> Path:
    """The user's data folder, a copy of those rows, on the CPU that they were taken on."""
    data = shutil.copytree(fitted_rows, tmp_path / "data")
    monkeypatch.setenv(DATA_VARIABLE, str(data))
    monkeypatch.setattr(profiles, "is_fitted", whose_rows.is_fitted)
    return data


@pytest.mark.usefixtures("few_own_rows")
def test_few_own_rows_are_said_to_measure_less_than_the_shipped_ones(command: Command) -> None:
    text = " ".join(command.text("one-batch", DEMO).split())
    assert text.startswith(f"The rows of {OWN} measure ")
    assert f"those of {SHIPPED}, taken on the same CPU, 100 %: name those with --set cluster.profile={SHIPPED}" in text
    assert one_batch(DEMO, [f"cluster.profile={SHIPPED}"]).provenance["better_rows"] == []


@pytest.mark.usefixtures("few_own_rows")
def test_own_rows_are_not_held_against_rows_of_another_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whose_rows, "cpu_name", lambda: "Abacus 1")
    assert one_batch(DEMO).provenance["better_rows"] == []


@pytest.mark.usefixtures("few_own_rows")
def test_a_profile_without_validation_runs_is_no_surer_than_one_with() -> None:
    own, shipped = (one_batch(DEMO, [f"cluster.profile={name}"]) for name in (OWN, SHIPPED))
    assert own.prices.profile_error == shipped.prices.profile_error
    widths = [math.log(each.step_time.high_us / each.step_time.median_us) for each in (own, shipped)]
    assert widths[0] >= widths[1]


def test_a_profile_that_is_sampled_but_not_fitted_names_the_command_that_fits(few_own_rows: Path) -> None:
    (few_own_rows / "samples" / OWN).rename(few_own_rows / "samples" / "mine")
    (note,) = one_batch(DEMO, ["cluster.profile=mine"]).provenance["notes"]
    assert note == "profile 'mine' has samples, but no time models yet; run `make train-regressors PROFILE=mine`"
    with pytest.raises(SamplesError, match=r"make train-regressors PROFILE=mine"):
        one_batch(DEMO, ["cluster.profile=mine"], require_measured=True)


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
@pytest.mark.usefixtures("on_another_cpu")
def test_each_command_says_first_whose_rows_it_rests_on(words: list[str], command: Command) -> None:
    text = command.text(*words)
    assert text.startswith(STAND_IN)
    assert f"samples: {SHIPPED}, taken on AMD EPYC" in text
    result = command.json(*words)
    assert result["provenance"]["notes"][0].endswith("`make train-regressors`")
    assert result["provenance"]["samples"]["profile"] == SHIPPED


@pytest.mark.usefixtures("on_another_cpu")
def test_a_profile_of_another_cluster_stands_for_its_own_device() -> None:
    cluster = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="a-cluster", cores=2)
    assert whose_rows.notes_on_rows(cluster, "Abacus 2") == []
    assert not whose_rows.is_another_cpu(cluster, "Abacus 2")


def test_own_rows_are_used_once_they_are_fitted(tmp_path: Path) -> None:
    (tmp_path / "samples" / "this-machine").mkdir(parents=True)
    assert profile_in_use("this-machine", tmp_path) == SHIPPED
    (tmp_path / "regressors" / "this-machine").mkdir(parents=True)
    assert profile_in_use("this-machine", tmp_path) == "this-machine"
    assert profile_in_use("other", tmp_path) == "other"


@pytest.mark.usefixtures("on_another_cpu")
def test_figures_of_another_cpu_are_not_kept_as_those_of_the_shipped_rows(command: Command) -> None:
    assert f"profile {SHIPPED}: its rows were taken on AMD EPYC" in command.refused(
        "validate", "this-machine", "--keep", code=3
    )


def test_a_gpu_asked_about_with_rows_of_a_cpu_is_refused_with_which_rows_and_what_to_name() -> None:
    gpu = ["cluster.hardware=h100-sxm"]
    with pytest.raises(
        SamplesError, match=f"'{OWN}' is answered from {SHIPPED}, which holds samples of CPU core, not of NVIDIA H100"
    ):
        one_batch(DEMO, gpu)
    assert one_batch(DEMO, [*gpu, "cluster.profile=analytic", "precision=bf16"]).is_analytic


def test_only_the_whole_set_of_runs_is_kept(command: Command) -> None:
    assert "--keep" in command.refused("validate", DEMO, "--keep")
    assert "--keep" in command.refused("validate", "this-machine", "--keep", "--set", "batch.micro=1")


def test_layers_timed_on_another_cpu_than_the_rest_are_reported(on_another_cpu: str) -> None:
    cluster = one_batch(DEMO).run.cluster
    samples: dict[str, Any] = {"provenance": {"device": {"name": "Abacus 2"}}}
    assert whose_rows.notes_on_benchmark(cluster, on_another_cpu, samples) == [
        "two CPUs in one step: layers timed on Abacus 1, the rest by rows of Abacus 2"
    ]
    assert whose_rows.notes_on_benchmark(cluster, "Abacus 2", samples) == [
        "the benchmark's layers were timed on Abacus 2, not on Abacus 1"
    ]
    gpu = dataclasses.replace(cluster, profile="a-cluster")
    assert whose_rows.notes_on_benchmark(gpu, "Abacus 2", samples) == []


@pytest.mark.usefixtures("on_the_shipped_cpu")
@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
def test_a_calibrated_answer_says_so(words: list[str], tmp_path: Path, command: Command) -> None:
    path = tmp_path / "terms.yml"
    measured = CalibratedRun(run="demo", measured_us=1e6, before_us=9e5, after_us=9.9e5, left_out_us=9e5)
    covariance = tuple(tuple(1e-4 * (row == column) for column in TERMS) for row in TERMS)
    terms = Calibration(launch=1.2, in_node=0.8)
    posterior = Posterior(terms=terms, covariance=covariance, runs=(measured,), date="2026-11-22")
    path.write_text(calibration_text(posterior))
    text = command.text(*words, "--calibration", str(path))
    assert "Calibrated to 1 measured run (2026-11-22): in node × 0.8, launch × 1.2" in text
    result = command.json(*words, "--calibration", str(path))
    assert result["provenance"]["calibration"]["in_node"] == 0.8
    assert command.json(*words)["provenance"]["calibration"] is None


# Rows that came after the models were fitted: said before the first figure, and not measured enough for --require-measured.

MINE = "mine"
NAMED = f"cluster.profile={MINE}"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a profile of the user's, sampled and fitted as the shipped one is."""
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    shutil.copytree(SHIPPED_DATA / "regressors" / SHIPPED, tmp_path / "regressors" / MINE)
    copy = tmp_path / "samples" / MINE / "manifest.json"
    copy.parent.mkdir(parents=True)
    shutil.copy(SHIPPED_DATA / "samples" / SHIPPED / "manifest.json", copy)
    return copy


def test_samples_newer_than_the_models_are_said_and_refused_where_all_must_be_measured(
    manifest: Path, command: Command
) -> None:
    assert one_batch(DEMO, [NAMED], require_measured=True).provenance["notes"] == []
    content = json.loads(manifest.read_text())
    content["sessions"].append({**content["sessions"][-1], "id": len(content["sessions"])})
    manifest.write_text(json.dumps(content))
    (note,) = one_batch(DEMO, [NAMED]).provenance["notes"]
    assert note == "mine: a sampling session is newer than its time models; run `make train-regressors PROFILE=mine`"
    with pytest.raises(SamplesError, match="is newer than its time models"):
        one_batch(DEMO, [NAMED], require_measured=True)
    assert "make train-regressors" in command.refused("one-batch", DEMO, "--set", NAMED, "--require-measured", code=3)


def test_models_without_their_samples_have_no_age(manifest: Path) -> None:
    manifest.unlink()
    assert one_batch(DEMO, [NAMED], require_measured=True).provenance["notes"] == []
