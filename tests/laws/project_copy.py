"""A temporary copy of the project with the examples of `docs/extend.md`, and commands that run in it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
COPIED = ("sampling", "regressors", "predict", "configs", "tests", "data/serving")
RUN = "configs/runs/llama3-70b-64xh100.yml"
ONE_STAGE = tuple(
    f"--set=plan.{setting}" for setting in ("tp=1", "sp=false", "pp=1", "vpp=1", "cp=1", "schedule=1f1b", "dp=64")
)
"""Options that turn the run's plan into data parallelism alone."""
DRIVER = """
import contextlib, io, json, runpy, sys
outputs = []
for command in json.loads(sys.argv[1]):
    sys.argv = command
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                sys.exit(f"{command}: exit code {end.code}\\n{output.getvalue()}")
    outputs.append(output.getvalue())
print(json.dumps(outputs))
"""


def project_with_examples(place: Path) -> Path:
    """A copy of packages, configs and tests in `place`, with the files of `docs/examples/*` at the same paths."""
    for name in COPIED:
        # compiled files come along, lest the first command compile every module
        shutil.copytree(ROOT / name, place / name)
    shutil.copytree(ROOT / "docs", place / "docs", ignore=shutil.ignore_patterns("examples", "pictures"))
    shutil.copy(ROOT / "pyproject.toml", place)
    for example in EXAMPLES.iterdir():
        if example.is_dir():
            shutil.copytree(example, place, dirs_exist_ok=True)
    return place


def python_files(example: str) -> set[str]:
    """Paths of an example's Python files in the project."""
    return {str(path.relative_to(EXAMPLES / example)) for path in (EXAMPLES / example).rglob("*.py")}


def run_modules(project: Path, *commands: tuple[str, ...]) -> list[str]:
    """The standard output of each `python -m COMMAND`, one after the other in one process of the copy."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(project)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs: list[str] = json.loads(done.stdout)
    return outputs
