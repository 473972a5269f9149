"""Temporary folders: removed after use, and what a killed process left by the next one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from sampling.files.disk import scratch_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.iterdir()]


def grown_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_a_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with scratch_folder("job") as folder:
        (folder / "job.json").write_text("{}")
        assert folder.parent == tmp_path
    assert left(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    abandoned, young, foreign = (tmp_path / name for name in ("steptime-job-a", "steptime-job-b", "other-c"))
    for folder in (abandoned, young, foreign):
        folder.mkdir()
        (folder / "job.json").write_text("{}")
    for folder in (abandoned, foreign):
        grown_old(folder)
    with scratch_folder("job"):
        pass
    assert sorted(left(tmp_path)) == ["other-c", "steptime-job-b"]


def test_a_folder_in_use_stays_however_old(tmp_path: Path) -> None:
    with scratch_folder("job") as folder:
        grown_old(folder)
        with scratch_folder("job"):
            assert folder.is_dir()
