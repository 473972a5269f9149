"""`predict compare`: the differences of runs, term by term."""

from __future__ import annotations

import argparse
from pathlib import Path

from predict.cli.options import (
    add_data,
    add_json,
    add_overrides,
    add_serving_questions,
    add_step_model,
    print_json,
    require_no_questions,
)
from sampling.errors import UserError

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
    from predict.kinds import RL, SERVING, kind_of
    from predict.reports.text import show

    of_serving = [kind_of(config) == SERVING for config in options.configs]
    if all(of_serving):
        from predict.cli import servers

        servers.compare(options)
        return
    if any(of_serving):
        one, other = (options.configs[of_serving.index(is_one)] for is_one in (True, False))
        if not Path(other).is_file():
            raise UserError(f"CONFIG: {other}: there is no such file; check the path")
        raise UserError(f"CONFIG: {one} is a serving config and {other} is not; give configs of one kind")
    require_no_questions(options, "slo", "price", "model", "coefficients")
    if all(kind_of(config) == RL for config in options.configs):
        from predict import rl_step
        from predict.reports.rl.step import rl_compare_json, rl_compare_text

        steps = [rl_step(config, options.overrides) for config in options.configs]
        if options.json:
            print_json(rl_compare_json(steps))
        else:
            show(rl_compare_text(steps))
        return
    from predict import compare
    from predict.reports.compare import compare_json, compare_text

    first, *others = options.configs
    differences = compare(first, *others, overrides=options.overrides)
    if options.json:
        print_json(compare_json(differences))
    else:
        show(compare_text(differences))
