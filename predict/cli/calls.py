"""`predict calls`: the calls that runs need, as a file for `python -m sampling --calls`."""

import argparse
from pathlib import Path

from predict.cli.options import add_settings, print_json, require_writable, write_json
from predict.plan_search.needed_calls import calls
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict calls configs/runs/demo.yml --output out/calls.json
  predict calls configs/runs/llama3-70b-64xh100.yml --set plan.tp=8 --set plan.dp=1
  predict calls configs/runs/demo.yml --set 'plan.tp=[1, 2]'      # of all plans of a search
  python -m sampling --calls out/calls.json
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "configs",
        nargs="+",
        metavar="CONFIG",
        help="configs (YAML) of runs, searches, serving or RL; of several, files that are not run configs are passed over and named",
    )
    command.add_argument(
        "--hardware",
        default="",
        metavar="NAME",
        help="entry of configs/hardware whose runs are meant; runs on other hardware are passed over and named (default: "
        "the runs', or this machine's where they are on several)",
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write there instead of stdout")
    add_settings(command)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    content = calls(options.configs, options.overrides, hardware=options.hardware, report=log)
    if options.output is None:
        print_json(content)
    else:
        write_json("--output", options.output, content)
        log(f"wrote {options.output}")
