"""`predict days`: days, GPU-hours, money and energy of a whole training."""

import argparse

from predict import days, estimate
from predict.cli.options import add_check, add_config, add_json, add_training, check_fit, loaded, print_json
from predict.ledger.training_cost import whole_training
from predict.reports.memory import misfit
from predict.reports.money import days_json, days_text
from predict.reports.text import show
from sampling.errors import Checks

EXAMPLES = """\
examples:
  predict days configs/runs/llama3-70b-64xh100.yml --tokens 2T --price 2.5/gpu-h
  predict days configs/runs/deepseek-v3-1024xh100.yml --tokens 14.8T --goodput 0.95 --json
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    add_training(command)
    command.add_argument(
        "--goodput",
        type=float,
        metavar="SHARE",
        help="share of the time that goes into steps that are kept (default: 0.9, as in Llama 3's training; `predict job` "
        "finds it from failures and saves)",
    )
    add_json(command)
    add_check(command)


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        checks.run(whole_training, options.tokens, price=options.price, goodput=options.goodput)
        with checks.one():
            run = loaded(options)
    prediction = estimate(run)
    cost = days(prediction, options.tokens, price=options.price, goodput=options.goodput)
    if options.json:
        print_json(days_json(prediction, cost))
    else:
        show(days_text(prediction, cost, assumed_goodput=options.goodput is None))
    check_fit(options, [misfit(prediction.memory)], said=True)
