"""`predict one-batch`: the time of one training step, from samples and models, from timed layers, or both side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from predict import estimate, memory_advice
from predict.cli import options as cli
from predict.cli.made_config import add_config_or_model, make_config
from predict.config.draft import PLACEHOLDERS, UNKNOWN
from predict.config.load import unknown_keys
from predict.prices.open import require_measured
from predict.reports.memory import headlines, misfit
from predict.reports.prediction import prediction_text, predictions_json, side_by_side
from predict.reports.text import show, with_provenance
from predict.step.prediction import Prediction
from sampling.command_line import log
from sampling.errors import UserError, naming

if TYPE_CHECKING:
    from predict.measurement.pace import Pace

MODES = ("benchmark", "simulate", "both")

DESCRIPTION = """\
How long one training step takes, and why.

The ledger names operators, and tp, cp, ep, fsdp, dp_exposed: communication that compute does not hide; p2p: sends between pipeline
stages; pp_bubble: ranks waiting for one another; recompute, gradient_accumulation, optimizer; glue and other: what a sampled layer
or cell takes beyond its parts; host: launching kernels; stragglers: waiting for the slowest rank; step_overhead, as stated.
docs/reference/glossary.md says more.
"""
EXAMPLES = """\
examples:
  predict one-batch configs/runs/demo.yml
  predict one-batch configs/runs/llama3-70b-64xh100.yml --set plan.recompute=full --check
  predict one-batch configs/runs/llama3-70b-64xh100.yml --target-nodes 16 --json
  predict one-batch configs/runs/llama3-70b-64xh100.yml --set plan.vpp=unknown --set plan.recompute=unknown
  predict one-batch --model llama3-70b --gpus 64xh100 --save-config llama3-70b.yml
  predict one-batch configs/runs/demo.yml --benchmark out/bench.json --profiling-mode both
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config_or_model(command)
    cli.add_json(command)
    command.add_argument(
        "--require-measured", action="store_true", help="exit with 3 unless samples cover all of the step's work"
    )
    command.add_argument("--benchmark", type=Path, metavar="FILE", help="layers as `predict benchmark` timed them")
    command.add_argument(
        "--profiling-mode",
        choices=MODES,
        help="layers from the benchmark, from samples and models, or both side by side (default: benchmark where one is "
        "given, else simulate)",
    )
    command.add_argument(
        "--pace",
        choices=("rows", "now"),
        default="rows",
        help="predict at the reference pace of the rows (the default), or at the pace that this machine has now, timed for seconds",
    )
    cli.add_check(command)
    cli.add_calibration(command)
    command.add_argument("--sources", action="store_true", help="list the source of each of the hardware's figures")
    cli.add_target_nodes(command)


def run(options: argparse.Namespace) -> None:
    made = make_config(options)
    if _partly_unknown(options):
        _show_likely(options)
        return
    pace, predictions = _at_pace_now(options) if options.pace == "now" else (None, _predictions(options))
    misfits = [misfit(prediction.memory) for prediction in predictions.values()]
    if options.json:
        paced = {"pace": pace.to_json()} if pace else {}
        cli.print_json(predictions_json(predictions) | paced | ({"config": made.content} if made else {}))
    elif len(predictions) > 1:
        timed = predictions["benchmark"]
        first = headlines(misfits)
        report = side_by_side(**predictions)
        show(with_provenance(report, timed.run, timed.provenance, analytic=timed.is_analytic, first=first))
    else:
        (prediction,) = predictions.values()
        advice = () if prediction.feasible else memory_advice(prediction)
        show(prediction_text(prediction, advice, full_sources=options.sources))
    cli.check_fit(options, misfits, said=True)


def _partly_unknown(options: argparse.Namespace) -> bool:
    """Whether keys of the config are `unknown`. UserError for options that need one run."""
    unknown = unknown_keys(options.config, options.overrides)
    names = ("benchmark", "profiling_mode", "target_nodes", "calibration", "require_measured", "sources")
    stated = [path for path in unknown if path in PLACEHOLDERS]  # without what follows from them
    if unknown:
        cli.refuse(
            cli.given(options, *names), f"needs one run, and {', '.join(stated)} is {UNKNOWN}; give a value, or omit it"
        )
    return bool(unknown)


def _show_likely(options: argparse.Namespace) -> None:
    from predict.plan_search.unknown_settings import likely_steps  # needed only where keys are unknown
    from predict.reports.prediction import likely_json, likely_text

    likely = likely_steps(options.config, options.overrides)
    cli.print_answer(options, likely, likely_json, likely_text)
    misfits = [misfit(one.memory) for one in likely.predictions]
    cli.check_fit(options, misfits if all(misfits) else [], said=True)


def _at_pace_now(options: argparse.Namespace) -> tuple[Pace, dict[str, Prediction]]:
    """The pace of this machine now, which is reported, and the prediction at it."""
    from predict.measurement.pace import at_pace, pace_now  # loads what runs steps for real

    cli.refuse(
        cli.given(options, "benchmark", "profiling_mode"),
        "brings times of its own, which --pace now does not change; omit it",
    )
    (prediction,) = _predictions(options).values()
    pace = pace_now(prediction)
    log(str(pace))
    return pace, {"simulate": at_pace(prediction.run, pace.shown)}


def _predictions(options: argparse.Namespace) -> dict[str, Prediction]:
    """Mode → prediction, the benchmark's first. SamplesError for a benchmark of another run."""
    mode = options.profiling_mode or ("benchmark" if options.benchmark else "simulate")
    if mode != "simulate" and not options.benchmark:
        raise UserError(
            f"--profiling-mode: {mode} needs timed layers; write them with `predict benchmark CONFIG --gpus N "
            "--output bench.json`, and add --benchmark bench.json"
        )
    run = cli.loaded(options)
    predictions = {}
    if mode != "simulate":
        from predict.reduced_benchmark.benchmark_file import load_benchmark

        with naming("--benchmark"):
            benchmark = load_benchmark(options.benchmark)
        benchmark.require_same_run(run, options.benchmark)
        predictions["benchmark"] = estimate(run, benchmark=benchmark, require_fit=False)
    if mode != "benchmark":
        predictions["simulate"] = estimate(run, require_fit=False)
    if options.require_measured:
        for prediction in predictions.values():
            require_measured(prediction.sources, run.cluster)
    return predictions
