"""`predict doctor`: what is installed, which device this is, which profiles there are, and what has to be mended."""

from __future__ import annotations

import argparse

from predict.cli.options import add_data, add_json, print_json
from sampling.errors import SamplesError

EXAMPLES = """\
examples:
  predict doctor
  predict doctor --json
  predict doctor --data data
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    from predict.checkup import checkup

    found = checkup()
    if options.json:
        print_json(found.to_json())
    else:
        from predict.reports.checkup import checkup_text
        from predict.reports.text import show

        show(checkup_text(found))
    if found.faults:
        raise SamplesError("\n".join(found.faults))
