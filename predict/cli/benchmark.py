"""`predict benchmark`, and the options of `one-batch` that rest on it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import UserError

if TYPE_CHECKING:
    from predict.run.training_run import TrainingRun
    from predict.step.estimate import StepEstimate

MODES = ("benchmark", "simulate", "both")
Add = Callable[[argparse.ArgumentParser], None]


def add(subcommands: Any, takes_config: Add) -> None:
    command = subcommands.add_parser("benchmark", help="time the run's whole layers on a few GPUs of this machine")
    takes_config(command)
    command.add_argument(
        "--gpus", type=int, required=True, metavar="N", help="GPUs (or shares of a CPU) to reduce the plan to"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the benchmark there instead of on stdout")
    command.set_defaults(run=_benchmark)


def add_options(one_batch: argparse.ArgumentParser) -> None:
    one_batch.add_argument("--benchmark", type=Path, metavar="FILE", help="layers as `predict benchmark` timed them")
    one_batch.add_argument(
        "--profiling-mode",
        choices=MODES,
        help="layers from the benchmark, from samples and models, or both side by side (default: benchmark where one is "
        "given, else simulate)",
    )
    one_batch.add_argument(
        "--calibration", type=Path, metavar="FILE", help="terms that `predict validate published --calibrate-on` fitted"
    )
    one_batch.add_argument(
        "--target-nodes", type=int, metavar="N", help="share the same global batch among the replicas of N nodes"
    )


def _benchmark(options: argparse.Namespace) -> None:
    if options.gpus < 1:
        raise UserError(f"--gpus: {options.gpus} is not a positive number; give 1 or more")
    if options.output and not options.output.parent.is_dir():
        raise UserError(f"--output: {options.output.parent} is no directory; make it, or give another path")
    from predict.config.load import load
    from predict.measure.benchmark.layer_benchmark import benchmark_layers, summary

    result = benchmark_layers(load(options.config, options.overrides), options.gpus, tell=_note)
    content = json.dumps(result.to_json(), indent=1)
    if options.output is None:
        print(content)
        return
    from sampling.files.disk import write_atomically

    try:
        write_atomically(options.output, f"{content}\n".encode())
    except OSError as error:
        raise UserError(f"--output: {options.output} cannot be written ({error.strerror}); give another path") from None
    print(summary(result))


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def predicted(options: argparse.Namespace) -> dict[str, StepEstimate]:
    """The estimates asked for, by mode, the benchmark's first.

    Raises UserError for options that do not go together, SamplesError for a benchmark that is not of this run.
    """
    mode = options.profiling_mode or ("benchmark" if options.benchmark else "simulate")
    if mode != "simulate" and not options.benchmark:
        raise UserError(
            f"--profiling-mode: {mode} needs timed layers; write them with `predict benchmark {options.config} --gpus N "
            "--output bench.json`, and add --benchmark bench.json"
        )
    from predict.prices import open as prices
    from predict.step.estimate import estimate

    run = _run(options)
    if options.calibration:
        from predict.prices.calibration import calibrated, read_calibration

        run = calibrated(run, read_calibration(options.calibration))
    opened = prices.open_prices(run.cluster, run.execution)
    found = {}
    if mode in ("benchmark", "both"):
        from predict.anchor.benchmark_file import load_benchmark, require_same
        from predict.anchor.restore import estimate_restored

        benchmark = load_benchmark(options.benchmark)
        require_same(benchmark, run, options.benchmark)
        found["benchmark"] = estimate_restored(run, benchmark, *opened)
    if mode in ("simulate", "both"):
        found["simulate"] = estimate(run, *opened)
    if options.require_measured:
        for result in found.values():
            prices.require_measured(result.sources, run.cluster)
    return found


def _run(options: argparse.Namespace) -> TrainingRun:
    from predict.config.load import load

    run = load(options.config, options.overrides)
    if options.target_nodes is None:
        return run
    from predict.run.target_nodes import settings_for_nodes

    return load(options.config, [*options.overrides, *settings_for_nodes(run, options.target_nodes)])


def show_estimates(found: dict[str, StepEstimate], *, as_json: bool) -> None:
    """One estimate as ever; of two, both under their modes."""
    from predict.report.estimate_json import VERSION, estimate_json

    if as_json:
        contents = {mode: estimate_json(result) for mode, result in found.items()}
        print(
            json.dumps(
                {"version": VERSION, **contents} if len(contents) > 1 else next(iter(contents.values())), indent=1
            )
        )
        return
    from predict.report.console import show
    from predict.report.estimate_text import estimate_text

    if len(found) > 1:
        from predict.report.side_by_side import side_by_side

        show(side_by_side(found["benchmark"], found["simulate"]))
        return
    (result,) = found.values()
    show(estimate_text(result))
    if "benchmark" in result.provenance:
        print(_foot(result))


def _foot(result: StepEstimate) -> str:
    told = result.provenance["benchmark"]
    plan = told["reduced_plan"]
    degrees = " · ".join(f"{name} {plan[name]}" for name in ("tp", "pp", "cp", "ep"))
    return f"benchmark: whole layers of {told['run']} timed at {degrees} on {told['world_size']} × {told['device']['name']}"
