"""Real training steps of a session: commands that a file names, so that sampling knows nothing of models and runs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from sampling.files.keys import Key
from sampling.files.places import CONFIGS, PACKAGE
from sampling.files.schema import read
from sampling.ranks.launch import environment

DEFAULT = CONFIGS / "sampling" / "gpu-steps.json"
MOST_ANSWER_BYTES = 200_000
"""Largest answer that is kept; one of `predict measure --json` has a few kB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RealStep:
    """One command, given to this Python: `-m MODULE ARGUMENTS…`. What it prints must be JSON.

    In an argument, `{hardware}` stands for the session's entry of configs/hardware.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    seconds: Annotated[float, Key(minimum=0, maximum=3600)]
    """Time that it takes at most, from start to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsFile:
    """The real steps of a session, in their order."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    steps: tuple[RealStep, ...]


def read_steps(path: Path | None, *, on_cpu: bool) -> Sequence[RealStep]:
    """The steps of a file; without one those of one GPU, and none on a CPU. ConfigError with every fault."""
    if path is None and on_cpu:
        return ()
    return read(StepsFile, path or DEFAULT).steps


def run_step(step: RealStep, limit_s: float, *, hardware: str) -> dict[str, Any]:
    """The JSON that the step's command printed, or {"error": why there is nothing}. Paths are relative to the clone."""
    if importlib.util.find_spec(step.module) is None:
        return {"error": f"there is no module {step.module}"}
    arguments = [argument.replace("{hardware}", hardware) for argument in step.arguments]
    command = [sys.executable, "-m", step.module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=PACKAGE, env=environment(0), capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"was not done after {limit_s:.0f} s"}
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        return {"error": f"exit code {done.returncode}: {' | '.join(last)}"}
    return _answer(done.stdout)


def _answer(printed: bytes) -> dict[str, Any]:
    if len(printed) > MOST_ANSWER_BYTES:
        return {"error": f"printed {len(printed):,} bytes, more than the {MOST_ANSWER_BYTES:,} that are kept"}
    try:
        answer = json.loads(printed)
    except ValueError:
        return {"error": "did not print JSON"}
    return answer if isinstance(answer, dict) else {"answer": answer}
