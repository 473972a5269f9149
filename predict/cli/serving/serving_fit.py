"""`predict serving-fit`: coefficients of a step model fitted to measured serving runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from predict.cli.options import add_command, add_json, log, print_json, require_writable, write_json

EXAMPLES = """\
examples:
  predict serving-fit docs/examples/serving --model formula --source made-up
"""
DESCRIPTION = """\
Fit the coefficients of a step model to measured serving runs: DIR holds serving_experiments.csv, a row for each stage.

Weights are least squares within physical bounds about stated priors, on the time per output token at the measured load, each stage
weighed by how much a simulation amplifies its error; the client's part of TTFT follows from simulations. Intervals are those of
leaving out one experiment at a time. --source says what the runs are.
"""


def add(subcommands: Any) -> None:
    command = add_command(
        subcommands, "serving-fit", "fit a step model to measured serving runs", EXAMPLES, description=DESCRIPTION
    )
    command.add_argument("traces", type=Path, metavar="DIR", help="folder of serving_experiments.csv")
    command.add_argument("--model", default="kernels", metavar="NAME", help="kernels (the default) or formula")
    command.add_argument(
        "--source", default="", metavar="TEXT", help="provenance of the runs, kept with the coefficients"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the coefficients there (.json)")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    from predict.report.console import show
    from predict.report.serving.coefficients import coefficients_text
    from predict.serving.coefficients import coefficients_json
    from predict.serving.step_model import step_model
    from predict.validate.serving.fitted import fitted_coefficients
    from predict.validate.serving.rows import read_stages

    found = fitted_coefficients(
        read_stages(options.traces, "DIR"), step_model(options.model), options.source or str(options.traces)
    )
    if options.output:
        write_json("--output", options.output, coefficients_json(found))
        log(f"wrote {options.output}")
    if options.json:
        print_json(coefficients_json(found))
    else:
        show(coefficients_text(found))
