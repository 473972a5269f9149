"""Time of a cold `predict one-batch`, beside Python's own start with numpy and yaml, and a warm estimate.

Bytecode is kept between the starts, as it is for an installed package, whatever PYTHONDONTWRITEBYTECODE says here.

python tests/bench/start_up.py
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stopwatch import seconds

from predict import one_batch

DEMO = str(Path(__file__).resolve().parents[2] / "configs" / "runs" / "demo.yml")
ROUNDS, FURTHER = 7, 50


def run(command: Sequence[str], bytecode: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": bytecode}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main() -> None:
    commands = {
        "numpy and yaml": [sys.executable, "-c", "import numpy, yaml"],
        "predict --help": [sys.executable, "-m", "predict", "--help"],
        "predict one-batch": [sys.executable, "-m", "predict", "one-batch", DEMO],
        "predict one-batch --json": [sys.executable, "-m", "predict", "one-batch", DEMO, "--json"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        for command in commands.values():
            run(command, bytecode)
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(seconds(partial(run, command, bytecode)))
    base = statistics.median(times["numpy and yaml"])
    for name, taken in times.items():
        print(f"{name:26} {statistics.median(taken) * 1e3:7.0f} ms   {statistics.median(taken) / base:5.2f} ×")
    one_batch(DEMO)
    warm = [seconds(lambda: one_batch(DEMO)) for _ in range(FURTHER)]
    print(f"{'a further estimate':26} {statistics.median(warm) * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
