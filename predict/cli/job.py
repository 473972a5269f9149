"""`predict job`: calendar time and cost of a whole training, with its saves, failures and evaluations."""

from __future__ import annotations

import argparse

from predict import estimate, job
from predict.cli.options import add_check, add_config, add_json, check_fit, loaded, print_json
from predict.ledger.training_cost import whole_training
from predict.ledger.whole_job import JobSettings, job_settings
from predict.reports.job import job_json, job_text
from predict.reports.memory import misfit
from predict.reports.text import show
from sampling.errors import Checks
from sampling.files.schema import keys_of

EXAMPLES = """\
examples:
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --price 2.5/gpu-h
  predict job configs/runs/llama3-70b-64xh100.yml --tokens 2T --with gpu_hours_a_failure=20000 --with save=sync
"""
NAMES = ", ".join(key.name for key in keys_of(JobSettings))


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument("--tokens", required=True, metavar="N", help="tokens to train on, such as 300B or 2T")
    command.add_argument(
        "--price", metavar="PRICE", help="what a GPU or node costs, such as 2.5/gpu-h, $2.5/gpu-h or 20/node-h"
    )
    command.add_argument(
        "--with",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"what happens beside the steps: {NAMES}; may be repeated",
    )
    add_json(command)
    add_check(command)


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        checks.run(whole_training, options.tokens, price=options.price)
        with checks.one():
            settings = job_settings(options.settings)
        with checks.one():
            run = loaded(options)
    prediction = estimate(run)
    found = job(prediction, options.tokens, price=options.price, settings=settings)
    if options.json:
        print_json(job_json(prediction, found))
    else:
        show(job_text(prediction, found, settings))
    check_fit(options, [misfit(prediction.memory)], said=not options.json)
