"""`predict explain`: the predicted ledger next to the one of a profile of the same run, and what makes the difference."""

import argparse
from pathlib import Path

from predict.cli.options import add_calibration, add_config, add_json, loaded, print_answer
from predict.measured_runs.explain.explanation import Explanation, explain
from predict.reports.diagnosis import judgement_json, judgement_text
from predict.reports.explanation import explanation_report
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict measure configs/runs/demo.yml --trace out/traces
  predict explain configs/runs/demo.yml --trace out/traces --log 735ms
  predict explain configs/runs/llama3-70b-64xh100.yml --trace rank0.json.gz --json
  predict explain configs/runs/llama3-70b-64xh100.yml --log train.log
"""
DESCRIPTION = """\
Compare a prediction with traces of torch's profiler (record_shapes=True), of one rank or, in a folder, of several. Both ledgers are of
the mean traced rank; the measured one adds up to the measured step, with what no operator explains in a row of its own. Waiting is separated
from transferring where more than one rank was traced. Without a trace, --log alone says whether the step is normal, what its steps show,
and what is likely to be wrong.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    add_traced_step(
        command,
        "a trace of torch's profiler (.json or .json.gz), or a folder with one per rank; without it, what --log alone shows",
        required=False,
    )
    add_calibration(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    found = explain(loaded(options), trace=options.trace, log=options.log, report=log)
    if isinstance(found, Explanation):
        print_answer(options, found, Explanation.to_json, explanation_report)
    else:
        print_answer(options, found, judgement_json, judgement_text)


def add_traced_step(command: argparse.ArgumentParser, traces: str, *, required: bool = True) -> None:
    """The traces, `traces` being their help, and the step's time without the profiler."""
    command.add_argument("--trace", type=Path, required=required, metavar="PATH", help=traces)
    command.add_argument(
        "--log",
        metavar="TIME",
        help="the step without the profiler: 412ms, the run's training log, or a file of `predict measure --json`",
    )
