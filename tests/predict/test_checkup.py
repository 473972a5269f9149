"""`predict doctor`: what it finds, and what it tells to mend."""

import importlib.metadata
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict.checkup import doctor
from predict.prices import sample_provenance as whose_rows
from predict.prices.pace import pace_spread
from regressors.bank import artifact
from sampling.extras import EXTRAS
from sampling.files.places import DATA_VARIABLE, SHIPPED_DATA
from sampling.store.profiles import OWN, SHIPPED, read_manifest
from tests.predict.command import Command

PACE: Mapping[str, Any] = {
    "disturbance": {"compute": 1.1},
    "mix": {"compute": 1.0},
    "unexplained": {"at_reference": 0.05, "by_log_pace": 0.0},
}
"""Facts of a pace whose readings do not explain all of it."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own data with a copy of the shipped profile under another name."""
    for kind in ("samples", "regressors"):
        shutil.copytree(SHIPPED_DATA / kind / SHIPPED, tmp_path / kind / "mine")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def nothing_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))


@pytest.mark.usefixtures("nothing_own")
def test_all_is_well_with_the_shipped_rows(command: Command) -> None:
    text = command.text("doctor")
    assert f"{SHIPPED} (answers runs here)  shipped" in text
    assert f"Runs here are answered from {SHIPPED}: no profile this-machine is fitted; run `make sample RUNS=…`" in text
    assert text.splitlines()[-1] == "Nothing is missing, damaged or stale."
    content = command.json("doctor")
    assert content["version"] == 1 and content["faults"] == []
    assert {library["name"] for library in content["libraries"]} >= {"numpy", "torch", "sklearn", "xgboost", *EXTRAS}
    assert content["folders"]["shipped data"] == str(SHIPPED_DATA)
    (shipped,) = content["profiles"]
    assert shipped["rows"] > 1000 and shipped["sampled"] and shipped["fitted"]


def test_rows_in_a_folder_whose_name_is_not_utf8_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"a\xff")
    shutil.copytree(SHIPPED_DATA / "samples" / SHIPPED, folder / "samples" / "mine")
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    shipped, mine = doctor().profiles
    assert mine.rows == shipped.rows


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "xgboost":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert "missing: xgboost (`pip install steptime[sample]`)" in " ".join(command.text("doctor").split())


def test_models_older_than_their_samples_are_stale(own: Path, command: Command) -> None:
    file = own / "samples" / "mine" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["sessions"].append({**manifest["sessions"][-1], "id": 99, "date": "2030-01-01"})
    file.write_text(json.dumps(manifest))
    captured = command.run("doctor", code=3)
    report = " ".join(captured.out.split())
    assert report.count("mine: 1 of its sampling sessions are newer") == 1
    assert "run `make train-regressors PROFILE=mine`" in report and "2030-01-01" in report and "To mend:" in report
    assert "1 fault to mend" in captured.err


def test_models_that_are_damaged_missing_or_of_another_format_are_reported(own: Path) -> None:
    bank = own / "regressors" / "mine" / "bank.npz"
    bank.write_bytes(b"nothing")
    (fault,) = doctor().faults
    assert "truncated or not a regressor file" in fault and "make train-regressors PROFILE=mine" in fault
    bank.unlink()
    assert doctor().faults == ["mine: has no time models; run `make train-regressors PROFILE=mine`"]


def test_few_own_rows_beside_many_shipped_ones_of_the_same_cpu_are_reported(
    own: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    for kind in ("samples", "regressors"):
        (own / kind / "mine").rename(own / kind / OWN)
    _, *others = sorted((own / "samples" / OWN).glob("*.parquet"), key=lambda table: table.stat().st_size)
    for table in others:
        table.unlink()
    monkeypatch.setattr("sampling.store.profiles.is_fitted", whose_rows.is_fitted)
    monkeypatch.setattr("predict.checkup.cpu_name", lambda: read_manifest(own / "samples" / OWN).device["name"])
    text = " ".join(command.text("doctor").split())
    assert f"usable rows of {OWN}; {SHIPPED} has " in text and f"--set cluster.profile={SHIPPED}, or sample on" in text


def test_a_fitted_profile_of_ones_own_is_named_beside_the_one_that_stands_in(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predict.checkup.cpu_name", lambda: read_manifest(own / "samples" / "mine").device["name"])
    assert "or name mine, of this CPU too, with --set cluster.profile=NAME" in doctor().advice


@pytest.mark.usefixtures("nothing_own")
def test_the_pace_of_a_profile_is_the_term_of_a_steps_interval_where_it_is_widest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = artifact.load(SHIPPED_DATA / "regressors" / SHIPPED)
    paces = {str(ranks): {**PACE, "half_width": 0.03 * ranks} for ranks in (1, 2)}
    monkeypatch.setattr(artifact, "load", lambda _: shipped._replace(facts={**shipped.facts, "pace": paces}))
    (found,) = doctor().profiles
    assert found.pace_half_width == pytest.approx(pace_spread(paces["2"], {})) and found.pace_half_width > 0.06


@pytest.mark.usefixtures("nothing_own")
def test_too_few_readings_of_a_pace_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = artifact.load(SHIPPED_DATA / "regressors" / SHIPPED)
    paces = {"1": {**PACE, "half_width": 0.0}}
    monkeypatch.setattr(artifact, "load", lambda _: shipped._replace(facts={**shipped.facts, "pace": paces}))
    assert doctor().profiles[0].pace_half_width is None


@pytest.mark.parametrize("moved, is_told", [(0.1, False), (0.4, True)])
def test_a_profile_sampled_while_the_machines_pace_moved_is_to_be_sampled_again(
    own: Path, moved: float, *, is_told: bool
) -> None:
    found = doctor()
    mine = next(each for each in found.profiles if each.name == "mine")
    paced = replace(mine, pace_half_width=math.log1p(moved))
    advice = replace(found, profiles=(paced,), cpu=mine.device).advice
    assert ("as it moved while mine was sampled, adds ±40 % to every interval" in advice) is is_told
    assert ("make sample PROFILE=mine RUNS=" in advice) is is_told
