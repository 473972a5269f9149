"""`predict diagnose`: whether a run fits and is normal, where its time is lost, and which changes help most."""

import argparse
from pathlib import Path

from predict.cli.options import add_json, add_settings, print_answer
from predict.diagnosis import diagnose
from predict.reports.diagnosis import diagnosis_json, diagnosis_text
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict diagnose configs/runs/llama3-70b-64xh100.yml
  predict diagnose pretrain.sh --set cluster.hardware=h100 --log train.log
  predict diagnose configs/runs/demo.yml --log 735ms --json
  predict diagnose configs/runs/demo.yml --trace out/traces
"""
DESCRIPTION = """\
From a launch script or a config, with a log or a trace where there is one, on one screen: the run as it is understood, whether it fits,
whether its measured step is normal and at what probability, published runs of the nearest kind, where time is lost, and the three changes
that help most, each predicted, in the words of the script's own tool.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "config",
        metavar="SCRIPT|CONFIG",
        nargs="?",
        help="run config (YAML), or a file that `predict import-config` reads; --set adds what that does not say",
    )
    add_settings(command)
    command.add_argument(
        "--log",
        metavar="FILE|TIME",
        help="the run's training log, a file of `predict measure --json`, or a time such as 3.2s",
    )
    command.add_argument(
        "--trace", type=Path, metavar="PATH", help="a trace of torch's profiler, or a folder with one per rank"
    )
    command.add_argument(
        "--accept",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="keys of the script that may be left out though they change time or memory",
    )
    add_json(command)


def run(options: argparse.Namespace) -> None:
    found = diagnose(
        options.config, options.overrides, log=options.log, trace=options.trace, accept=options.accept, report=log
    )
    print_answer(options, found, diagnosis_json, diagnosis_text)
