"""A temporary copy of the project into which an example of `docs/extend.md` is dropped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
COPIED = ("sampling", "regressors", "predict", "configs", "tests")


def project_with(example: str, place: Path) -> Path:
    """A copy of packages, configs and tests in `place`, with the files of `docs/examples/EXAMPLE` at the same paths."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    shutil.copytree(EXAMPLES / example, place, dirs_exist_ok=True)
    return place


def run_module(project: Path, *arguments: str) -> str:
    """The standard output of `python -m ARGUMENTS` in the copy."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
