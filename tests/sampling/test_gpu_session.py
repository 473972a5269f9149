"""The front door on a machine with torch and numpy alone, and a session on this CPU that is killed for good."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sampling.session.archive import progress_of, read_events
from sampling.store.sample import Sample

CLONE = Path(__file__).resolve().parents[2]
HANGS_S = 300.0
"""Time without the rows that a test waits for after which something hangs."""
FORBIDDEN = ("pandas", "pyarrow", "yaml", "sklearn", "scipy", "xgboost", "rich", "joblib", "numba", "matplotlib")
WITHOUT = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in FORBIDDEN else find(name, path, target)
importlib.machinery.PathFinder.find_spec = staticmethod(find_spec)
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sampling.gpu_session", *arguments]


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python, and of its children, that has none of the forbidden libraries."""
    return without(tmp_path, FORBIDDEN)


def without(tmp_path: Path, libraries: tuple[str, ...]) -> dict[str, str]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT.replace("FORBIDDEN", repr(libraries)))
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_python_without_torch_is_reported_in_one_line(tmp_path: Path) -> None:
    env = without(tmp_path, ("torch",))
    done = subprocess.run(command(), cwd=CLONE, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "has no torch; take a Python that has both" in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
    rows = rows_when_killed(session, out, 1, env=bare)
    done = subprocess.run(session, cwd=CLONE, env=bare, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    after = rows_in(out)
    assert after[: len(rows)] == rows
    assert len(after) > len(rows) >= 1
    good = [row for row in after if not row.quarantine]
    assert len({(row.call, row.phase) for row in good}) == len(good)


def rows_in(out: Path) -> list[Sample]:
    return progress_of(read_events(out)).rows if out.is_dir() else []


def rows_when_killed(session: list[str], out: Path, count: int, env: dict[str, str] | None = None) -> list[Sample]:
    """The archive's rows after a session was killed for good as soon as they were so many, and its workers ended, a moment later."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(session, cwd=CLONE, env=env, stderr=quiet, stdout=quiet, start_new_session=True) as running:
        hangs_at_s = time.monotonic() + HANGS_S
        while len(rows_in(out)) < count:
            assert running.poll() is None, "the session ended before it had the rows"
            assert time.monotonic() < hangs_at_s
            time.sleep(0.05)
        running.kill()
    while alive(running.pid):
        assert time.monotonic() < hangs_at_s
        time.sleep(0.05)
    return rows_in(out)


def alive(group: int) -> bool:
    """Whether a process of the group runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
