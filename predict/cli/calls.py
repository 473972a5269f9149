"""`predict calls`: the calls that runs need, as a file for `python -m sampling --calls`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from predict.cli.options import add_data, add_overrides, print_json, require_writable, write_json
from sampling.errors import UserError


def add(subcommands: Any) -> None:
    command = subcommands.add_parser("calls", help="write the calls that runs need, for `python -m sampling --calls`")
    command.add_argument("configs", nargs="+", metavar="CONFIG", help="run configs (YAML)")
    command.add_argument("--output", type=Path, metavar="FILE", help="write there instead of stdout")
    add_overrides(command)
    add_data(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    from predict import load
    from predict.workload.decompose import requests_of_runs
    from sampling.choosing.calls_file import calls_file_content

    runs = [load(config, options.overrides) for config in options.configs]
    hardware = sorted({run.cluster.gpu.name for run in runs})
    if len(hardware) > 1:
        raise UserError(
            f"cluster.hardware: the runs are on {' and '.join(hardware)}; write the calls of each by itself"
        )
    content = calls_file_content(requests_of_runs(runs), hardware[0])
    if options.output is None:
        print_json(content)
    else:
        write_json("--output", options.output, content)
