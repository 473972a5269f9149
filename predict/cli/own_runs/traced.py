"""Options of the commands that read traces of a step."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_traced_step(command: argparse.ArgumentParser, traces: str) -> None:
    """The traces, `traces` being their help, and the step's time without the profiler."""
    command.add_argument("--trace", type=Path, required=True, metavar="PATH", help=traces)
    command.add_argument(
        "--log",
        metavar="TIME",
        help="the step without the profiler: 412ms, the run's training log, or a file of `predict measure --json`",
    )
