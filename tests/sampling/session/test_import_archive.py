"""Archives merge into the profile of their device, once; others are refused with exit code 3."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.__main__ import main
from sampling.session.archive import FACTS, parts, progress_of, read_events, read_facts, write_facts
from sampling.session.gpu_run import RealStep
from sampling.session.gpu_worker import join_session
from sampling.store.pace_log import read_log
from sampling.store.profiles import read_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from tests.sampling.session.rehearsed import plan_of, rehearsal

STEP = RealStep(name="dense", module="predict", arguments=(), seconds=5.0)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that says it is of a real device, so that the command takes it; read-only."""
    directory = tmp_path_factory.mktemp("rehearsed") / "archive"
    rehearsal(directory, plan_of(models=2), budget_s=50.0, steps=(STEP,)).run()
    write_facts(directory, replace(read_facts(directory), rehearsal=False))
    return directory


@pytest.fixture
def archive(rehearsed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rehearsed, tmp_path / "archive"))


def stored(data: Path) -> list[Sample]:
    return list(iterate_samples(read_samples(data / "samples" / "h200")))


def run(archive: Path, data: Path) -> int:
    return main(["import-archive", str(archive), "--data", str(data)])


def test_rows_and_real_steps_come_once_with_the_device_and_the_session_they_are_from(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(archive, tmp_path) == 0
    rows = stored(tmp_path)
    assert len(rows) == len(progress_of(read_events(archive)).rows)
    assert len(read_log(tmp_path / "samples" / "h200")) == len(progress_of(read_events(archive)).paces) > 0
    assert f"{len(rows)} new rows of NVIDIA H200" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "samples" / "h200")
    assert (manifest.profile, manifest.hardware, manifest.device["name"]) == ("h200", "h200", "NVIDIA H200")
    assert manifest.sessions[0].keys() >= {"id", "date", "versions", "commit", "timer", "communication"}
    assert [session["archive"] for session in manifest.sessions] == [read_facts(archive).id]
    assert run(archive, tmp_path) == 0
    assert "0 new rows" in capsys.readouterr().out
    assert sorted(map(repr, stored(tmp_path))) == sorted(map(repr, rows))
    assert read_manifest(tmp_path / "samples" / "h200") == manifest
    steps = json.loads((tmp_path / "samples" / "h200" / "real-steps.json").read_text())
    assert steps == {read_facts(archive).id: {"dense": {"rehearsed": True}}}


def test_a_second_archive_of_the_same_device_adds_a_session(archive: Path, tmp_path: Path) -> None:
    run(archive, tmp_path)
    before = len(stored(tmp_path))
    facts = read_facts(archive)
    write_facts(archive, replace(facts, id="another", device={**facts.device, "memory_gib": 140.4}))
    assert run(archive, tmp_path) == 0
    assert sorted({row.session for row in stored(tmp_path)}) == [0, 1]
    assert len(stored(tmp_path)) == 2 * before


def test_a_machine_with_more_such_devices_takes_part(archive: Path, tmp_path: Path) -> None:
    run(archive, tmp_path)
    facts = read_facts(archive)
    eight = {**facts.device, "count": 8}
    session = {"token": "on another machine"}
    assert join_session(archive, hardware=facts.hardware, device=eight, session=session) == 1
    write_facts(archive, replace(facts, id="another", device=eight))
    assert run(archive, tmp_path) == 0


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"time_us": ', b'"time_us": 1', 1))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no archive": (lambda archive: (archive / FACTS).unlink(), "not the archive of a GPU session"),
    "a damaged row": (lambda archive: damage(parts(archive)[0]), "checksum"),
    "a rehearsal": (lambda archive: write_facts(archive, replace(read_facts(archive), rehearsal=True)), "rehearsal"),
    "no sessions": (
        lambda archive: write_facts(archive, replace(read_facts(archive), sessions=[])),
        "does not describe",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_no_sound_archive_is_refused(
    fault: str, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, message = BROKEN[fault]
    spoil(archive)
    assert run(archive, tmp_path) == 3
    assert message in capsys.readouterr().err
    assert not list((tmp_path).rglob("*.parquet"))


def test_an_archive_of_another_device_is_refused(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(archive, tmp_path)
    before = stored(tmp_path)
    facts = read_facts(archive)
    write_facts(archive, replace(facts, id="another", device={**facts.device, "name": "NVIDIA H20"}))
    assert run(archive, tmp_path) == 3
    assert "another --profile" in capsys.readouterr().err
    assert stored(tmp_path) == before
