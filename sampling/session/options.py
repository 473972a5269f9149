"""The options of a sampling session, the same for `python -m sampling` and for guided sampling."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from sampling.errors import ConfigError
from sampling.files.places import OWN_DATA_IN_WORDS


def session_parser(program: str, description: str, *, models: int) -> argparse.ArgumentParser:
    """A parser of the options; `models` is the default of --models."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="hardware, nodes, GPUs per node and profile: a file of configs/clusters",
    )
    add("--profile", help="name the rows are kept under (default: that of --cluster, or this-machine)")
    add("--budget", type=float, default=300.0, metavar="SECONDS", help="wall-clock budget (default: %(default)g)")
    add("--calls", type=Path, metavar="FILE", help="calls to time first, from `predict calls`")
    add("--hardware", metavar="NAME", help="entry of configs/hardware (default: that of --cluster, or detected)")
    add("--ranges", type=Path, metavar="FILE", help="ranges to draw shapes from (default: configs/sampling/<kind>.yml)")
    add("--models", type=int, default=models, help="models to draw shapes from (default: %(default)s)")
    add("--fresh", action="store_true", help="start the profile anew; old rows are set aside")
    add("--data", type=Path, metavar="DIR", help=f"folder of samples/ (default: {OWN_DATA_IN_WORDS})")
    return parser


def check_options(options: argparse.Namespace) -> None:
    """ConfigError for a number that is out of range."""
    if not 0 < options.budget < math.inf:
        raise ConfigError(f"--budget: {options.budget:g} is not a positive, finite number of seconds")
    if options.models < 0:
        raise ConfigError(f"--models: {options.models} is not a number of models; give 0 or more")
