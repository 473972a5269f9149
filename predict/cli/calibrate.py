"""`predict calibrate`: a handful of bounded terms fitted to measured runs of a cluster."""

import argparse
from pathlib import Path

from predict.cli.options import add_json, add_settings, given, print_answer, print_json, refuse
from predict.measured_runs.calibrate import calibrate, forget
from predict.prices.sample_provenance import require_known
from predict.reports.calibration import calibration_json, calibration_report
from predict.reports.learnt import few_shot_text
from predict.validation.few_shot import few_shot, few_shot_json
from predict.validation.published_row import read_rows
from sampling.command_line import log
from sampling.errors import UserError, naming

EXAMPLES = """\
examples:
  predict calibrate configs/runs/llama3-70b-64xh100.yml --measured 14.9s --output out/h100.calibration.yml
  predict calibrate configs/runs/llama3-70b-64xh100.yml --measured train.log --output out/h100.calibration.yml
  predict calibrate --few-shot 3 --truth data/published/runs.csv --json
"""
DESCRIPTION = """\
Fit seven bounded terms (products, memory-bound work, links inside and between nodes, launches, stragglers, exposed communication) to
measured steps of a cluster, over stated priors: one step moves a term a little, three narrow the interval. Runs given later are added
to those that the file holds. The file is used where the cluster's has the key `calibration`, or with --calibration, and every estimate
says so.
"""
OF_A_FIT = ("configs", "measured", "output", "dry_run")
FEW_SHOT = ("few_shot", "truth", "profile")


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("configs", nargs="*", type=Path, metavar="CONFIG", help="run configs (YAML) of one cluster")
    command.add_argument(
        "--measured",
        nargs="+",
        default=[],
        metavar="TIME|FILE",
        help="the step of each config, in their order: 412ms, 3.2s, a log of Megatron, NeMo, torchtitan, DeepSpeed or transformers' "
        "Trainer, or a file of `predict measure --json`",
    )
    command.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: NAME.calibration.yml next to the cluster's)",
    )
    command.add_argument("--dry-run", action="store_true", help="show the fit, write nothing")
    command.add_argument(
        "--forget",
        type=Path,
        metavar="FILE",
        help="go back to the priors, without the runs that the file holds; it keeps its history",
    )
    command.add_argument(
        "--few-shot",
        type=int,
        metavar="N",
        help="judge instead: of each source of --truth take N runs as measured, and print the others' error before and after",
    )
    command.add_argument(
        "--truth", type=Path, metavar="FILE", help="a CSV file of measured runs (`predict schema --truth`)"
    )
    command.add_argument("--profile", default="", metavar="NAME", help="with --few-shot: the samples to price all from")
    add_settings(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    if options.forget is not None:
        _forget(options)
    elif given(options, *FEW_SHOT):
        _few_shot(options)
    else:
        _calibrate(options)


def _calibrate(options: argparse.Namespace) -> None:
    if not (options.configs and options.measured):
        lacking = "--measured" if options.configs else "CONFIG"
        raise UserError(f"{lacking}: missing; give for example CONFIG --measured 412ms")
    place, posterior = calibrate(
        options.configs,
        options.overrides,
        measured=options.measured,
        output=options.output,
        write=not options.dry_run,
        report=log,
    )
    print_answer(
        options,
        posterior,
        lambda each: {**calibration_json(each, place), "written": not options.dry_run},
        calibration_report,
    )
    if options.dry_run:
        log(f"--dry-run: {place or 'no file'} is {'not ' if place else ''}written")
        return
    assert place is not None
    log(
        f"wrote {place}; it is used where the cluster's file has the line `calibration: {place.name}`, or with --calibration {place}"
    )


def _forget(options: argparse.Namespace) -> None:
    refuse(given(options, *OF_A_FIT, *FEW_SHOT), "cannot be combined with --forget; omit it")
    with naming("--forget"):
        posterior = forget(options.forget)
    if options.json:
        print_json(calibration_json(posterior, options.forget))
    log(f"{options.forget}: back to the priors; its history has {len(posterior.history)} fits")


def _few_shot(options: argparse.Namespace) -> None:
    refuse(given(options, *OF_A_FIT, "overrides"), "cannot be combined with --few-shot; omit it")
    if options.few_shot is None or options.truth is None:
        lacking = "--few-shot" if options.few_shot is None else "--truth"
        raise UserError(f"{lacking}: missing; give --few-shot 3 --truth FILE")
    if options.few_shot < 0:
        raise UserError(f"--few-shot: {options.few_shot} is not a number of runs; give 0 or more")
    if options.profile:
        require_known(options.profile)
    judged = few_shot(list(read_rows(options.truth)), options.few_shot, profile=options.profile, report=log)
    print_answer(
        options,
        judged,
        lambda each: few_shot_json(each, options.few_shot),
        lambda each: few_shot_text(each, options.few_shot),
    )
