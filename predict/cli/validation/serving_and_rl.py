"""`predict validate serving` and `rl`: measured serving runs, and published steps of reinforcement learning."""

from __future__ import annotations

import argparse

from predict.cli.options import log, print_json
from sampling.errors import UserError


def serving(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give the folder of serving_experiments.csv")
    from predict.validate.serving.command import validate_serving

    content = validate_serving(options.truth, options.model, options.coefficients)
    if options.json:
        print_json(content)
        return
    from predict.report.published.serving import serving_validation_text
    from predict.report.text import show

    show(serving_validation_text(content))


def rl(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of published RL steps, one per row")
    from predict import estimate
    from predict.validate.rl.command import validate_rl

    content = validate_rl(options.truth, estimate)
    if options.json:
        print_json(content)
        return
    from predict.report.rl.validation import rl_validation_text
    from predict.report.text import show

    show(rl_validation_text(content))


def rl_configs(options: argparse.Namespace) -> None:
    """RL steps of this machine, predicted and then run."""
    from predict.report.rl.measured import measured_rl_text
    from predict.report.text import show
    from predict.validate.rl.measured import measured_rl_json, validate_rl_here

    rows = validate_rl_here(options.what, options.overrides, rounds=options.rounds or 3, tell=log)
    content = measured_rl_json(rows)
    if options.json:
        print_json(content)
    else:
        show(measured_rl_text(rows, content["summary"]))


def serving_configs(options: argparse.Namespace) -> None:
    """Loads of this machine's real server, predicted and then served."""
    from predict.report.serving.own_loads import own_loads_text
    from predict.report.text import show
    from predict.serving.coefficients import read_coefficients
    from predict.validate.serving.own_loads import ROUNDS, validate_loads

    content = validate_loads(
        options.what,
        options.overrides,
        rounds=options.rounds or ROUNDS,
        coefficients=read_coefficients(options.coefficients) if options.coefficients else None,
        tell=log,
    )
    if options.json:
        print_json(content)
    else:
        show(own_loads_text(content))
