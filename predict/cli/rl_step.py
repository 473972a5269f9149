"""`predict rl-step`: one step of reinforcement learning, phase by phase."""

import argparse

from predict import rl_step, rl_step_draws
from predict.cli import options as cli
from predict.reports.rl_step import rl_misfit, rl_step_json, rl_step_text

EXAMPLES = """\
examples:
  predict rl-step configs/rl/qwen3-30b-a3b-grpo.yml
  predict rl-step configs/rl/qwen3-30b-a3b-grpo.yml --set rl.n=8 --set rl.rollout.tp=2
  predict rl-step configs/rl/qwen3-30b-a3b-grpo.yml --set rl.rollout.memory_share=0.9 --check
  predict rl-step configs/rl/qwen3.5-35b-a3b-grpo.yml --set actor_rollout_ref.rollout.n=8 --json
"""
DESCRIPTION = """\
Predict one step of reinforcement learning: generation, log-probabilities, updates and the transfer of new weights to the engines, under
verl's names, each with a 90 % interval, its MFU, and what bounds it.

CONFIG is a run config whose section `rl` takes the place of `batch`; --set takes its keys, and verl's own argument names.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", help="RL config (YAML), as in configs/rl")
    command.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="also how steps differ: percentiles over N draws of the lengths",
    )
    cli.add_settings(command)
    cli.add_check(command)
    cli.add_json(command)


def run(options: argparse.Namespace) -> None:
    cli.require_positive(options, "draws")
    step = rl_step(options.config, options.overrides)
    cli.log_not_read(step.rl.not_read)
    draws = rl_step_draws(options.config, options.overrides, draws=options.draws) if options.draws else None
    cli.print_answer(options, step, lambda step: rl_step_json(step, draws), lambda step: rl_step_text(step, draws))
    cli.check_fit(options, [rl_misfit(step.memory)], said=True)
