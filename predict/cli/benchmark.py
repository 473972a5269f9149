"""`predict benchmark`: the run's whole layers timed on a few GPUs of this machine, into a file for `one-batch --benchmark`."""

import argparse
from pathlib import Path

from predict.cli import options as cli
from predict.measurement.benchmark import benchmark, summary
from predict.reduced_benchmark.benchmark_file import as_json
from sampling.command_line import log
from sampling.errors import Checks

EXAMPLES = """\
examples:
  predict benchmark configs/runs/demo.yml --gpus 1 --output out/bench.json
  predict one-batch configs/runs/demo.yml --benchmark out/bench.json
"""


def add_options(command: argparse.ArgumentParser) -> None:
    cli.add_config(command)
    command.add_argument(
        "--gpus", type=int, required=True, metavar="N", help="GPUs (or shares of a CPU) to reduce the plan to"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the benchmark there instead of on stdout")


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        checks.run(cli.require_positive, options, "gpus")
        checks.run(cli.require_writable, "--output", options.output)
    result = benchmark(options.config, options.overrides, gpus=options.gpus, report=log)
    if options.output is None:
        cli.print_json(as_json(result))
        return
    cli.write_json("--output", options.output, as_json(result))
    print(summary(result))
