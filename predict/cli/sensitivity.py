"""`predict sensitivity`: what better hardware and other settings would bring."""

from __future__ import annotations

import argparse

from predict.cli.options import add_config, add_json, print_json

EXAMPLES = """\
examples:
  predict sensitivity configs/runs/llama3-70b-64xh100.yml
  predict sensitivity configs/runs/llama3-70b-64xh100.yml --set plan.tp=8 --set plan.dp=1 --json
"""
DESCRIPTION = """\
Rank what 10 % more of each figure of the hardware, its links and the framework would bring, and each other value of a setting of
`execution`. Each change is predicted by itself.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    from predict import sensitivity
    from predict.reports.sensitivity import sensitivity_json, sensitivity_text
    from predict.reports.text import show

    found = sensitivity(options.config, options.overrides)
    if options.json:
        print_json(sensitivity_json(found))
    else:
        show(sensitivity_text(found))
