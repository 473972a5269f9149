import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regressors.__main__ import main
from regressors.bank.artifact import load
from regressors.bank.bank import Bank
from regressors.features.arrays import Floats
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.store.journal import append_to_journal, fold_journal
from sampling.store.profiles import Manifest, samples_directory, write_manifest
from tests.made_rows import row

SIZES = (64, 96, 128, 192, 256, 384, 512, 768)
FEW = SIZES[:4]
"""Too few to hold any out: the roofline alone is fitted, at once."""


def write_samples(data: Path, sizes: Sequence[int] = SIZES) -> None:
    directory = samples_directory("toy", data)
    write_manifest(directory, Manifest(profile="toy", hardware="cpu", device={"cpu": "toy"}))
    for size in sizes:
        for quarantine in ("", "above the peak"):
            time_us = 10 + size**3 / 1e4 * (0.001 if quarantine else 1)
            call = Gemm(dtype="fp32", m=size, n=512, k=size)
            known = {"threads": 1, "busy_ranks": 2, "repeats": 10, "quarantine": quarantine}
            append_to_journal(directory, row(call, "forward", time_us, spread=0.01, **known))
    fold_journal(directory)


def test_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_samples(tmp_path, FEW)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1"]) == 2
    assert f"{tmp_path / 'regressors' / 'toy'}: cannot be written (No space left on device)" in capsys.readouterr().err


def test_samples_become_a_bank_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_samples(tmp_path)
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1"]) == 0
    output = capsys.readouterr()
    assert "gemm" in output.out
    assert "fitting: 1 of 1" in output.err
    directory = tmp_path / "regressors" / "toy"
    assert sorted(path.name for path in directory.iterdir()) == [
        ".searches.json",
        "bank.npz",
        "report.json",
        "report.md",
    ]
    report = json.loads((directory / "report.json").read_text())
    assert [row["rows"] for row in report["quarantined"]] == [8]
    # three random fifths of 8 rows, every row in one of the folds of shapes, the largest fifth
    assert [(row["split"], row["rows"]) for row in report["operators"]] == [
        ("random", 6),
        ("shape", 8),
        ("extrapolation", 2),
    ]
    assert "| own samples toy | gemm forward (1 threads) | shape | 8 |" in (directory / "report.md").read_text()
    bank = Bank.load(directory)
    assert bank.facts["provenance"]["device"] == {"cpu": "toy"}
    cluster = load_cluster(hardware="cpu", nodes=1, gpus_per_node=2, profile="toy", cores=2)
    sampled, unseen = bank.times([(Gemm(dtype="fp32", m=s, n=512, k=s), "forward") for s in (256, 300)], cluster)
    assert sampled.median_us == pytest.approx(10 + 256**3 / 1e4, rel=0.02)
    assert sampled.median_us < unseen.median_us


def test_a_second_fit_takes_the_settings_that_the_first_one_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_samples(tmp_path)
    arguments = ["--profile", "toy", "--data", str(tmp_path), "--jobs", "1", "--json"]
    kept = tmp_path / "regressors" / "toy" / ".searches.json"

    def reported() -> dict[str, Any]:
        assert main(arguments) == 0
        return {**json.loads(capsys.readouterr().out), "date": ""}

    def refused(*_: object) -> Floats:
        raise AssertionError("settings were judged again")

    first, content = reported(), kept.read_bytes()
    assert [(row["kind"], row["judged"]) for row in first["searches"]] == [("random-forest", 2), ("xgboost", 2)]
    assert all(row["log_error"] > 0 and "max_" in row["settings"] for row in first["searches"])
    with monkeypatch.context() as patch:
        patch.setattr("regressors.fitting.settings_search.judged_us", refused)
        assert reported() == first
    kept.write_bytes(content[:-10])
    assert reported() == first
    assert kept.read_bytes() == content


def test_brief_is_one_line_that_names_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_samples(tmp_path)
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1", "--brief"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("1 time models fitted, mean error ")
    assert line.endswith(str(tmp_path / "regressors" / "toy" / "report.md"))


def test_no_samples_is_one_clean_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "a100", "--data", str(tmp_path)]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "make sample PROFILE=a100" in output.err
    assert not (tmp_path / "regressors").exists()


@pytest.mark.parametrize("kind", ["roofline", "blend", "random-forest", "xgboost"])
def test_one_kind_of_model_may_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    write_samples(tmp_path)
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1", "--model", kind]) == 0
    directory = tmp_path / "regressors" / "toy"
    report = json.loads((directory / "report.json").read_text())
    assert {row["candidate"] for row in report["operators"]} == {kind}
    assert kind in report["title"]
    assert all(row["raw_forest"] and row["raw_xgboost"] for row in report["operators"])
    (record,) = load(directory).records.values()
    assert record["candidate"] == kind


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("own", [False, True], ids=["beside the shipped", "elsewhere"])
def test_shipped_rows_are_refitted_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own: bool
) -> None:
    shipped, mine = tmp_path / "shipped", tmp_path / "mine"
    write_samples(shipped, FEW)
    (shipped / "published").mkdir()
    (shipped / "published" / "toy-steps.json").write_text("{}")
    before = contents(shipped)
    for module in ("regressors.__main__", "sampling.store.profiles"):
        monkeypatch.setattr(f"{module}.SHIPPED_DATA", shipped)
        monkeypatch.setattr(f"{module}.own_data", lambda: mine if own else shipped)
    monkeypatch.setattr("sampling.store.profiles.SHIPPED", "toy")
    assert main(["--profile", "toy", "--jobs", "1", "--model", "roofline", "--brief"]) == 0
    home = mine if own else shipped / "refitted"
    error = capsys.readouterr().err
    assert "the rows of toy ship with the project" in error
    assert str(home) in error
    assert {name: content for name, content in contents(shipped).items() if not name.startswith("refitted")} == before
    assert (home / "regressors" / "toy" / "bank.npz").is_file()
    for kind in ("samples", "published"):
        assert contents(home / kind) == contents(shipped / kind)

    assert main(["--profile", "toy", "--jobs", "1", "--model", "roofline", "--brief", "--data", str(shipped)]) == 0
    assert (shipped / "regressors" / "toy" / "bank.npz").is_file()


def test_a_profile_is_no_donor_to_its_own_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows would be learnt from and held out at once."""
    write_samples(tmp_path, FEW)
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1"]) == 0
    assert main(["--profile", "toy", "--data", str(tmp_path), "--jobs", "1", "--donor", "toy"]) == 2
    (tmp_path / "samples" / "again").symlink_to(tmp_path / "samples" / "toy")
    assert main(["--profile", "again", "--data", str(tmp_path), "--jobs", "1", "--donor", "toy"]) == 2
    assert "name a profile of another device" in capsys.readouterr().err
