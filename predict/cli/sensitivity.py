"""`predict sensitivity`: what better hardware and other settings would bring."""

import argparse

from predict import sensitivity
from predict.cli.options import add_config, add_json, add_slo, add_step_model, print_answer
from predict.reports.sensitivity import sensitivity_json, sensitivity_text

EXAMPLES = """\
examples:
  predict sensitivity configs/runs/llama3-70b-64xh100.yml
  predict sensitivity configs/runs/llama3-70b-64xh100.yml --set plan.tp=8 --set plan.dp=1 --json
  predict sensitivity configs/rl/qwen3-30b-a3b-grpo.yml
  predict sensitivity configs/serving/llama3-8b-h100.yml --slo ttft_p90=1s
"""
DESCRIPTION = """\
Rank what 10 % more of each figure of the hardware, its links and the framework would bring, and each other value of a setting of
`execution`, and of a training run the plan and the batch a step further: degrees, microbatch, chunks, recomputation, ZeRO.
Each change is predicted by itself. Of an RL config it is the step that changes, and settings of its engines are tried too;
of a serving config the rate that the server carries, and its latencies.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    of_serving = command.add_argument_group("of a serving config")
    add_slo(of_serving)
    add_step_model(of_serving)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    found = sensitivity(
        options.config, options.overrides, slo=options.slo, model=options.model or "", coefficients=options.coefficients
    )
    print_answer(options, found, sensitivity_json, sensitivity_text)
