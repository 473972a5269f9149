"""The front door on a machine with torch and numpy alone, and a session on this CPU that is killed for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sampling.gpu_session.archive import read_events
from sampling.gpu_session.progress import progress_of
from sampling.store.sample import Sample

CLONE = Path(__file__).resolve().parents[3]
FORBIDDEN = ("pandas", "pyarrow", "yaml", "sklearn", "scipy", "xgboost", "rich", "joblib", "numba", "matplotlib")
WITHOUT_THEM = f"""
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {FORBIDDEN!r} else find(name, path, target)
importlib.machinery.PathFinder.find_spec = staticmethod(find_spec)
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sampling.gpu_session", *arguments]


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python, and of its children, that has none of the forbidden libraries."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_THEM)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_the_libraries_are_gone(bare: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", "import yaml"], env=bare, capture_output=True, text=True, check=False)
    assert "No module named 'yaml'" in done.stderr


def test_the_dry_run_needs_torch_and_numpy_alone(bare: dict[str, str]) -> None:
    dry = command("--dry-run", "--minutes", "3", "--models", "2")
    done = subprocess.run(dry, cwd=CLONE, env=bare, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "plan for one NVIDIA H200" in done.stdout
    assert "it needs pandas and pyarrow" in done.stdout
    assert "left out 1 × FakeDeviceError: an illegal memory access" in done.stdout


def test_a_session_on_a_bare_machine_is_killed_and_goes_on(bare: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "archive"
    session = command("--hardware", "cpu", "--minutes", "1", "--models", "0", "--out", str(out))
    running = subprocess.Popen(session, cwd=CLONE, env=bare, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (rows := rows_in(out)):
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    done = subprocess.run(session, cwd=CLONE, env=bare, capture_output=True, text=True, check=False, timeout=120)
    while "another session writes" in done.stderr:  # the worker of the killed one dies a moment after it
        done = subprocess.run(session, cwd=CLONE, env=bare, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    after = rows_in(out)
    assert after[: len(rows)] == rows
    assert len(after) > len(rows) >= 1
    assert len({(row.call, row.phase) for row in after}) == len(after)


def rows_in(out: Path) -> list[Sample]:
    return progress_of(read_events(out)).rows if out.is_dir() else []


def test_a_dry_run_killed_for_good_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "archive"
    rehearsal = command("--dry-run", "--minutes", "20", "--models", "6", "--out", str(out))
    lengths = [0]
    for _ in range(2):
        running = subprocess.Popen(rehearsal, cwd=CLONE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until and running.poll() is None and len(rows_in(out)) <= lengths[-1] + 15:
            time.sleep(0.05)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        rows = rows_in(out)
        assert len({(row.call, row.phase, row.state) for row in rows}) == len(rows) > lengths[-1]
        lengths.append(len(rows))
