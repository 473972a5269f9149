"""Starts the process that trains a run on one GPU, waits for it, and leaves it in no case behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from predict.layers.run_json import dump_run
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.files.disk import scratch_folder
from sampling.ranks.launch import environment, tail

WORKER = "predict.measurement.gpu.worker"


def train_alone(run: TrainingRun, *, steps: int | None, timeout_s: float, device: str = "cuda") -> dict[str, Any]:
    """The worker's report (`predict.measurement.gpu.worker.train`), over `steps` timed steps or, for None, ten seconds of them.

    UserError with the worker's last lines if it fails, or after `timeout_s`.
    """
    with scratch_folder("real-step") as folder:
        config, result, log = folder / "run.json", folder / "result.json", folder / "log"
        config.write_text(dump_run(run))
        command = [sys.executable, "-m", WORKER, str(config), str(result), "--device", device]
        command += [] if steps is None else ["--steps", str(steps)]
        with log.open("wb") as output:
            worker = subprocess.Popen(
                command, env=environment(0), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                exit_code = worker.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise UserError(f"{run.name}: its steps were not done after {timeout_s:g} s{_end(log)}") from None
            finally:
                worker.kill()
                worker.wait()
        if exit_code:
            raise UserError(f"{run.name}: the step failed{_end(log)}")
        content: dict[str, Any] = json.loads(result.read_text())
        return content


def _end(log: Path) -> str:
    text = tail(log.read_text(errors="replace"))
    return f":\n{text}" if text else ""
