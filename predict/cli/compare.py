"""`predict compare`: the differences of runs, term by term."""

import argparse
from functools import partial

from predict import estimate
from predict.cli import options as cli
from predict.cli.sweep import progress_of_combinations, server_options
from predict.plan_search.compare import hint_on_settings, predicted
from predict.reports.compare import compare_json, compare_text
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict compare configs/runs/this-machine/pipeline-1f1b.yml configs/runs/schedules/zb-h1.yml
  predict compare configs/runs/llama3-70b-64xh100.yml configs/runs/deepseek-v3-1024xh100.yml --json
  predict compare configs/serving/llama3-8b-h100.yml configs/serving/mixtral-2xh100.yml --price 2.5/gpu-h
  predict compare configs/rl/this-machine/grpo.yml configs/rl/this-machine/two-epochs.yml
"""
DESCRIPTION = """\
Compare runs with the first: what differs in their settings, and what each heading of the step and each term of memory adds or saves.
RL configs are compared phase by phase, serving configs by their latencies, the rate that they carry and what they cost.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("configs", nargs="+", metavar="CONFIG", help="two or more run configs (YAML)")
    of_serving = command.add_argument_group("of serving configs")
    cli.add_serving_questions(of_serving)
    cli.add_step_model(of_serving)
    cli.add_overrides(command)
    cli.add_data(command)
    cli.add_json(command)


def run(options: argparse.Namespace) -> None:
    with progress_of_combinations("compare", options.configs[0]) as progress:
        of, found = predicted(options.configs, options.overrides, server_options(options), estimate, progress)
    if hint := hint_on_settings(options.configs, options.overrides):
        log(hint)
    cli.print_answer(options, found, partial(compare_json, of), partial(compare_text, of))
