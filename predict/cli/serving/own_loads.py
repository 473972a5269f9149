"""`predict validate CONFIG…` of serving configs: their loads predicted, then served for real on this machine."""

from __future__ import annotations

import argparse

from predict.cli.options import log, print_json


def run(options: argparse.Namespace) -> None:
    from predict.report.console import show
    from predict.report.serving.own_loads import own_loads_text
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
