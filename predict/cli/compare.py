"""`predict compare`: the differences of runs, term by term."""

from __future__ import annotations

import argparse

from predict.cli.options import (
    add_data,
    add_json,
    add_overrides,
    add_serving_questions,
    add_step_model,
    naming,
    print_json,
)
from predict.cli.sweep import progress_of_combinations, server_options
from predict.kinds import TRAINING, kind, require_one_kind
from sampling.errors import Checks, UserError

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
    add_serving_questions(of_serving)
    add_step_model(of_serving)
    add_overrides(command)
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    if len(options.configs) == 1:
        raise UserError(f"CONFIG: {options.configs[0]} alone has nothing beside it; give two or more run configs")
    from predict import estimate
    from predict.plan_search.compare import differences
    from predict.reports.compare import compare_json, compare_text, side_by_side_json, side_by_side_text
    from predict.reports.text import show

    of = kind(require_one_kind(options.configs))
    runs, found = [], []
    with Checks() as checks:
        with checks.one():
            predict = of.predictor(estimate, server_options(options))
        for config in options.configs:
            with checks.one():
                runs.append(of.load(config, options.overrides))
    with progress_of_combinations("compare", of) as progress:
        for run in runs:
            with naming(run.name):
                found.append(predict(run))
            if progress:
                progress(len(found), len(runs))
    if of.name == TRAINING:
        from_first = differences(found[0], found[1:])
        if options.json:
            print_json(compare_json(from_first))
        else:
            show(compare_text(from_first))
    elif options.json:
        print_json(side_by_side_json(of, found))
    else:
        show(side_by_side_text(of, [run.name for run in runs], found))
