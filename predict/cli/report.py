"""`predict report`: plans as one HTML page that opens from disk."""

import argparse
from pathlib import Path

from predict.cli.options import add_settings, given, log_not_read, refuse, require_output, write_file
from predict.kinds import RL, kind_of
from predict.ledger.training_cost import require_paid
from predict.reports.page.report import report
from sampling.command_line import log
from sampling.errors import Checks

SUFFIXES = (".html",)
EXAMPLES = """\
examples:
  predict report configs/runs/llama3-70b-64xh100.yml -o out/llama3-70b.html
  predict report configs/runs/demo.yml --set batch.micro=1 -o out/demo.html
  predict report configs/rl/qwen3-30b-a3b-grpo.yml -o out/rl.html
  predict report configs/runs/llama3-70b-64xh100.yml configs/runs/demo.yml -o out/both.html --tokens 2T --price 2.5/gpu-h
"""
DESCRIPTION = """\
One HTML file with the answer for one plan, or for several side by side.

Of RL configs it shows the phases, what trainer and engines do over the step, and memory while generating and updating.

Of others it shows the step with its interval, where it goes, the memory of each rank and over the step, the pipeline with the operators
behind each block, throughput by sequence and microbatch, plans next to each other, sensitivities, ledgers, and each assumption with its source. It opens
from disk, offline, and loads nothing from elsewhere.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("configs", metavar="CONFIG", nargs="+", help="run configs (YAML), shown side by side")
    add_settings(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the page to write: .html")
    command.add_argument("--tokens", metavar="N", help="also what a whole training of so many tokens costs, such as 2T")
    command.add_argument("--price", metavar="PRICE", help="with --tokens: what a GPU or node costs, such as 2.5/gpu-h")


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        checks.run(require_output, "--output", options.output, SUFFIXES)
        checks.run(require_paid, options.tokens, options.price)
    if RL in map(kind_of, options.configs):
        refuse(given(options, "tokens", "price"), "does not apply to an RL config; omit it")
    page = report(options.configs, options.overrides, tokens=options.tokens, price=options.price)
    for names in page.not_read:
        log_not_read(names)
    write_file("--output", options.output, page.html)
    log(f"wrote {options.output}")
