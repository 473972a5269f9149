"""`predict trace`: the predicted step as a trace, for Perfetto or for simulators of networks."""

import argparse
from pathlib import Path

from predict.cli.options import add_config, require_folder, require_output, writing
from predict.reports.traces.trace import FORMATS, trace
from sampling.command_line import log
from sampling.errors import Checks, UserError

SUFFIXES = (".json", ".gz")
EXAMPLES = """\
examples:
  predict trace configs/runs/llama3-70b-64xh100.yml -o out/step.json.gz
  predict trace configs/runs/demo.yml --format chakra -o out/chakra
"""
DESCRIPTION = """\
The predicted step as a trace that other tools read.

chrome: for Perfetto (ui.perfetto.dev), every action of every pipeline rank with its operators and the communication streams next to
them, .json or .json.gz. chakra: execution traces of MLCommons Chakra for ASTRA-sim and its kin, a folder with a file per GPU and the
groups: compute with its predicted time, messages with their bytes, whose time is then the simulator's to find.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument("--format", choices=FORMATS, default="chrome", help="chrome (default) or chakra")
    command.add_argument(
        "--every-gpu", action="store_true", help="chakra: a file for every GPU, not one GPU of each pipeline rank"
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="PATH", required=True, help="the file, or for chakra the folder, to write"
    )


def run(options: argparse.Namespace) -> None:
    chakra = options.format == "chakra"
    with Checks() as checks:
        if chakra:
            checks.run(require_folder, "--output", options.output)
        else:
            checks.run(require_output, "--output", options.output, SUFFIXES)
        with checks.one():
            if options.every_gpu and not chakra:
                raise UserError(
                    "--every-gpu: a Chrome trace has pipeline ranks, not GPUs; give --format chakra too, or omit it"
                )
    with writing("--output", options.output):
        written = trace(
            options.config,
            options.overrides,
            output=options.output,
            format=options.format,
            every_gpu=options.every_gpu,
        )
    if chakra:
        log(f"wrote {len(written.files)} traces and their groups to {options.output}")
    else:
        log(f"wrote {options.output}, with the operators of each rank's first {written.detailed:,} actions")
