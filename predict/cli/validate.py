"""`predict validate`: predictions compared with what was measured here, held out, or published."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from predict.cli import options as cli
from predict.reports.learnt import left_out_text, plan_setting_text, widths_text
from predict.reports.memory import misfit
from predict.reports.pictures.error_plots import errors_figure
from predict.reports.pictures.figure_file import SUFFIXES, save_figure
from predict.reports.printed import Renderable
from predict.reports.ranking import ranking_text, recipes_text
from predict.reports.validated_runs import jobs_text, published_memory_text, published_text, rl_validation_text
from predict.reports.validated_servers import published_servers_text, serving_validation_text
from predict.reports.validation_here import measured_rl_text, own_loads_text, validation_text
from predict.step.prediction import Prediction
from predict.validation.here import notes_on
from predict.validation.published import configurations
from predict.validation.sources import ValidationOptions, validate
from regressors.accuracy.report import as_text as samples_text
from sampling.command_line import log
from sampling.errors import UserError
from sampling.extras import require_library

DESCRIPTION = """\
Hold predictions against measurements: of configs, which are run here, or by one of these words.

this-machine   the runs of configs/runs/this-machine and configs/runs/transformers, run here
this-gpu       the runs of configs/runs/this-gpu on the GPU found here; without a GPU, the steps that sessions brought to --profile
samples        the time models on rows held out; its tables are kept in benchmarks
published      training steps that others printed: those that ship, or the rows of --truth
jobs           hours, failures and energy of whole trainings that others printed: those that ship, or the rows of --truth
memory         measured peaks of memory in --truth
ranking        the order of the measured plans in --truth, and which of them run out of memory
recipes        the tuned plans in --truth beside the best that a search finds for the same job
serving        measured serving runs in the folder --truth
servers        figures of inference systems that others printed: those that ship, or the rows of --truth
rl             published steps of reinforcement learning in --truth
"""
EXAMPLES = """\
examples:
  predict validate configs/runs/demo.yml
  predict validate this-machine --rounds 1
  predict validate samples
  predict validate published --truth data/published/runs.csv --plot out/errors.svg
  predict validate configs/rl/this-machine/*.yml
  predict validate serving --truth docs/examples/serving --model formula
  predict validate configs/serving/this-machine/*.yml
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        metavar="WORD|CONFIG",
        nargs="+",
        help="configs, or one of the words above",
    )
    _add_truth(command)
    cli.add_settings(command)
    command.add_argument(
        "--rounds", type=int, help="interleaved rounds of measuring (default: 3, on a GPU 1 of ten seconds and more)"
    )
    command.add_argument(
        "--keep",
        action="store_true",
        help="this-machine, this-gpu: keep the figures as the error of its profile, in data/published",
    )
    command.add_argument(
        "--save", type=Path, metavar="FILE", help="recipes: keep the plans that are found there, and go on from them"
    )
    command.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="published: draw the errors over batch per GPU, sequence length, GPUs, precision and device, as .svg or .png",
    )
    cli.add_check(command)
    cli.add_json(command)


def _add_truth(command: argparse.ArgumentParser) -> None:
    """Options for tables that others measured, and for how they are judged."""
    command.add_argument(
        "--truth",
        type=Path,
        metavar="FILE",
        help="published, jobs, memory, ranking, recipes, servers, rl: a CSV file of measured runs, one per row; serving: the folder of serving_experiments.csv",
    )
    command.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="serving: kernels (the default), formula, or published: the formula as published",
    )
    command.add_argument(
        "--coefficients",
        type=Path,
        metavar="FILE",
        help="serving: coefficients that `predict serving-fit` wrote, of --model's",
    )
    command.add_argument(
        "--profile", default="", metavar="NAME", help="published, this-machine, this-gpu: the samples to price all from"
    )
    command.add_argument(
        "--calibrate-on",
        type=Path,
        metavar="FILE",
        help="published: fit the terms of `predict calibrate` to the runs of a CSV file, write them to --calibration, use them",
    )
    command.add_argument("--calibration", type=Path, metavar="FILE", help="published: use, or write, these terms")
    command.add_argument(
        "--widths",
        action="store_true",
        help="published: learn from these runs how wide each unknown makes an interval, and judge it on sources left out; "
        "ranking: how wide each differing setting makes the ratio of two plans",
    )
    command.add_argument(
        "--leave-out",
        action="store_true",
        help="published: learn each constant that was read off published runs again without each source, and judge it there",
    )
    command.add_argument(
        "--measurements",
        type=Path,
        metavar="DIR",
        help="samples: published measurements to judge too, a folder with estimate-train-time/ or aiconfigurator/",
    )


def run(options: argparse.Namespace) -> None:
    if options.plot is not None:
        _require_plot(options)
    given = {each.name: getattr(options, each.name) for each in fields(ValidationOptions) if each.name != "check"}
    found = validate(
        *options.what,
        **given,
        check=(lambda predictions: cli.check_fit(options, _misfits(predictions))) if options.check else None,
        report=log,
    )
    cli.print_answer(options, found, lambda found: found.content, lambda found: TEXTS[found.answer](found.found))
    if options.plot is not None:
        with cli.writing("--plot", options.plot):
            save_figure(
                lambda: errors_figure(configurations(found.found[0])), options.plot, title="errors of published runs"
            )
        log(f"wrote {options.plot}")
    if found.answer == "runs" and found.found.failed:
        failed, of = found.found.failed, len(found.found.predictions)
        raise UserError(
            f"{len(failed)} of {of} runs failed and have no row: {', '.join(failed)}; mend what is reported above, and the same command "
            "measures them alone"
        )


def _require_plot(options: argparse.Namespace) -> None:
    """UserError, before the work, where there is nothing to draw or no way to."""
    if options.what != ["published"] or options.widths or options.leave_out:
        raise UserError("--plot: draws the errors of `predict validate published`; remove it")
    cli.require_output("--plot", options.plot, SUFFIXES)
    require_library("matplotlib")


def _misfits(predictions: Sequence[Prediction]) -> list[str]:
    return [misfit(each.memory) for each in predictions]


TEXTS: Mapping[str, Callable[[Any], Renderable]] = {
    "samples": samples_text,
    "published": lambda found: published_text(*found),
    "widths": widths_text,
    "constants": left_out_text,
    "jobs": jobs_text,
    "memory": published_memory_text,
    "ranking": ranking_text,
    "plan-setting": plan_setting_text,
    "recipes": recipes_text,
    "serving": serving_validation_text,
    "servers": lambda found: published_servers_text(*found),
    "rl": rl_validation_text,
    "runs": lambda found: validation_text(found.rows, notes_on(found.predictions), _misfits(found.predictions)),
    "rl-configs": measured_rl_text,
    "serving-configs": own_loads_text,
}
"""The text of each answer."""
