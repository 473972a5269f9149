"""Rows that came after the models were fitted: said before the first figure, and not measured enough for --require-measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from predict import SamplesError, one_batch
from predict.cli import main
from sampling.files.places import CONFIGS, DATA_VARIABLE, SHIPPED_DATA
from sampling.store.profiles import SHIPPED

DEMO = CONFIGS / "runs" / "demo.yml"
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
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_batch(DEMO, [NAMED], require_measured=True).provenance["notes"] == []
    content = json.loads(manifest.read_text())
    content["sessions"].append({**content["sessions"][-1], "id": len(content["sessions"])})
    manifest.write_text(json.dumps(content))
    (note,) = one_batch(DEMO, [NAMED]).provenance["notes"]
    assert note == "mine: a sampling session is newer than its time models; run `make train-regressors PROFILE=mine`"
    with pytest.raises(SamplesError, match="is newer than its time models"):
        one_batch(DEMO, [NAMED], require_measured=True)
    assert main(["one-batch", str(DEMO), "--set", NAMED, "--require-measured"]) == 3
    assert "make train-regressors" in capsys.readouterr().err


def test_models_without_their_samples_have_no_age(manifest: Path) -> None:
    manifest.unlink()
    assert one_batch(DEMO, [NAMED], require_measured=True).provenance["notes"] == []
