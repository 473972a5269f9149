"""`predict report`: plans as one HTML page that opens from disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from predict.cli.options import (
    add_data,
    add_overrides,
    given,
    log,
    log_not_read,
    refuse,
    require_output,
    write_file,
)
from predict.kinds import RL, kind_of
from sampling.errors import Checks, UserError

SUFFIXES = (".html",)
EXAMPLES = """\
examples:
  predict report configs/runs/llama3-70b-64xh100.yml -o llama3-70b.html
  predict report configs/runs/demo.yml --set batch.micro=1 -o demo.html
  predict report configs/rl/qwen3-30b-a3b-grpo.yml -o rl.html
  predict report configs/runs/llama3-70b-64xh100.yml configs/runs/demo.yml -o both.html --tokens 2T --price 2.5/gpu-h
"""
DESCRIPTION = """\
One HTML file with the answer for one plan, or for several side by side.

Of RL configs it shows the phases, what trainer and engines do over the step, and memory while generating and updating.

Of others it shows the step with its interval, where it goes, the memory of each rank and over the step, the pipeline with the operators
behind each block, throughput by sequence and microbatch, plans beside each other, sensitivities, ledgers, and each assumption with its source. It opens
from disk, offline, and loads nothing from elsewhere.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("configs", metavar="CONFIG", nargs="+", help="run configs (YAML), shown side by side")
    add_overrides(command)
    add_data(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the page to write: .html")
    command.add_argument("--tokens", metavar="N", help="also what a whole training of so many tokens costs, such as 2T")
    command.add_argument("--price", metavar="PRICE", help="with --tokens: what a GPU or node costs, such as 2.5/gpu-h")


def run(options: argparse.Namespace) -> None:
    _check(options)
    if RL in map(kind_of, options.configs):
        _run_rl(options)
        return
    from predict import days, estimate, load
    from predict.reports.page.content import report_content
    from predict.reports.page.document import report_page

    predictions = [estimate(load(config, options.overrides), require_fit=False) for config in options.configs]
    costs = [days(each, options.tokens, price=options.price) if options.tokens else None for each in predictions]
    content = report_content(options.configs, options.overrides, predictions, costs)
    title = " and ".join(each.run.name for each in predictions)
    write_file("--output", options.output, report_page(content, title=title))
    log(f"wrote {options.output}")


def _check(options: argparse.Namespace) -> None:
    """UserError with every fault of the options."""
    from predict.ledger.training_cost import require_paid

    with Checks() as checks:
        checks.run(require_output, "--output", options.output, SUFFIXES)
        checks.run(require_paid, options.tokens, options.price)


def _run_rl(options: argparse.Namespace) -> None:
    """Write one page of the steps of RL configs, side by side, or of one with its throughput at other lengths."""
    refuse(given(options, "tokens", "price"), "does not go with an RL config; omit it")
    if others := [config for config in options.configs if kind_of(config) != RL]:
        raise UserError(
            f"CONFIG: {', '.join(others)}: not an RL config, where others here are; give each kind a page of its own"
        )
    from predict import estimate, rl_step
    from predict.plan_search.rl_space import length_map
    from predict.reports.page.document import report_page
    from predict.reports.page.rl import rl_content

    steps = [rl_step(config, options.overrides) for config in options.configs]
    for step in steps:
        log_not_read(step.rl.not_read)
    alone = options.configs if len(steps) == 1 else []
    maps = [length_map(config, options.overrides, estimate) for config in alone]
    title = " and ".join(step.rl.name for step in steps)
    write_file("--output", options.output, report_page(rl_content(steps, maps), title=title))
    log(f"wrote {options.output}")
