"""`predict memory`: whether a run fits on its GPUs, when it holds the most, and what would make it fit."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from predict import estimate, memory_advice, rl_step
from predict.cli import options as cli
from predict.cli.made_config import add_config_or_model, make_config
from predict.kinds import RL, kind_of
from predict.measurement.benchmark import run_memory_benchmark
from predict.memory.estimate import SAFETY_MARGIN, MemoryEstimate
from predict.reduced_benchmark.benchmark_file import as_json, load_memory_benchmark
from predict.reduced_benchmark.restore_memory import RestoredMemory, restore_memory
from predict.reports.memory import headlines, misfit
from predict.reports.pictures.figure_file import SUFFIXES
from predict.reports.pictures.memory_plot import save_memory_plot
from predict.reports.restored_memory import memory_report_json, memory_report_text
from predict.reports.rl_step import rl_memory_json, rl_memory_text, rl_misfit
from predict.reports.text import show, with_provenance
from predict.run.training_run import TrainingRun
from sampling.command_line import log
from sampling.errors import Checks, UserError, naming
from sampling.extras import require_library
from sampling.number_text import as_given

DESCRIPTION = """\
Predict the memory of each pipeline rank: state, live activations by the run's own schedule, the action in progress, buffers.

FITS (in 95 % of runs or more), OOM (in 5 % or less) or AT RISK (between). Where it does not fit, changes that make it
fit are listed with their cost in step time.
"""
EXAMPLES = """\
examples:
  predict memory configs/runs/llama3-70b-64xh100.yml
  predict memory configs/runs/llama3-70b-64xh100.yml --set batch.micro=4 --timeline out/memory.svg
  predict memory configs/runs/llama3-70b-64xh100.yml --check --json
  predict memory --model llama3-70b --gpus 64xh100
  predict memory configs/rl/qwen3.5-35b-a3b-grpo.yml
  predict memory configs/runs/demo.yml --mode both --save-benchmark out/memory.json
"""
OF_TRAINING_RUNS = (
    *("mode", "target_nodes", "calibration", "timeline", "formula", "safety_margin"),
    *("benchmark_gpus", "save_benchmark", "load_benchmark", "model", "gpus", "batch", "save_config"),
)
MODES = ("simulate", "benchmark", "both")


def add_options(command: argparse.ArgumentParser) -> None:
    add_config_or_model(command)
    cli.add_json(command)
    command.add_argument(
        "--safety-margin",
        type=float,
        metavar="SHARE",
        help="share of the expected peak (in benchmark mode, of what the benchmark could not explain) that the upper bound adds "
        f"for what the terms miss (default: {SAFETY_MARGIN})",
    )
    cli.add_target_nodes(command)
    cli.add_calibration(command)
    command.add_argument("--timeline", type=Path, metavar="FILE", help="draw memory over the step: .svg or .png")
    cli.add_check(command)
    command.add_argument("--formula", choices=("primus",), help="print the published formulas of Primus Projection too")
    of_benchmark = command.add_argument_group("benchmark mode: the reduced run is trained here, and its bytes counted")
    of_benchmark.add_argument(
        "--mode",
        choices=MODES,
        help="simulate: the modelled peak alone; benchmark: the counted peak first, then the modelled one; both: the modelled peak first "
        "(default: benchmark with --load-benchmark or --save-benchmark, else simulate)",
    )
    of_benchmark.add_argument(
        "--benchmark-gpus", type=int, metavar="N", help="devices to reduce the run to (default: 1)"
    )
    of_benchmark.add_argument("--save-benchmark", type=Path, metavar="FILE", help="write what was counted there")
    of_benchmark.add_argument("--load-benchmark", type=Path, metavar="FILE", help="take what was counted from there")


def run(options: argparse.Namespace) -> None:
    with Checks() as checks:
        with checks.one():
            mode = _mode(options)
        checks.run(_check, options)
    if kind_of(options.config) == RL:
        _run_rl(options)
        return
    made = make_config(options)
    prediction = estimate(cli.loaded(options), require_fit=False)
    margin = _margin(options)
    memory = replace(prediction.memory, safety_margin=margin)
    advice = memory_advice(prediction, safety_margin=margin)
    restored = _restored(options, prediction.run, memory) if mode != "simulate" else None
    judged = restored if mode == "benchmark" else None
    why = misfit(memory, point_bytes=judged.point_bytes if judged else None)
    if options.json:
        content = memory_report_json(memory, advice, mode=mode, restored=restored, formula=bool(options.formula))
        content["provenance"] = dict(prediction.provenance)
        cli.print_json(content | ({"config": made.content} if made else {}))
    else:
        report = memory_report_text(memory, advice, mode=mode, restored=restored, formula=bool(options.formula))
        first, analytic = headlines([why]), prediction.is_analytic
        show(with_provenance(report, prediction.run, prediction.provenance, analytic=analytic, first=first))
    if options.timeline:
        bubble_fraction = prediction.bubble_fraction
        with cli.writing("--timeline", options.timeline):
            save_memory_plot(prediction.memory_timeline, memory, options.timeline, bubble_fraction=bubble_fraction)
        log(f"wrote {options.timeline}")
    cli.check_fit(options, [why], said=True)


def _run_rl(options: argparse.Namespace) -> None:
    """An RL config: engine and trainer side by side. UserError for options that apply only to a training run."""
    cli.refuse(cli.given(options, *OF_TRAINING_RUNS), "does not apply to an RL config; omit it")
    step = rl_step(options.config, options.overrides)
    cli.log_not_read(step.rl.not_read)
    cli.print_answer(options, step, lambda step: rl_memory_json(step.memory), rl_memory_text)
    cli.check_fit(options, [rl_misfit(step.memory)], said=True)


def _mode(options: argparse.Namespace) -> str:
    files = options.load_benchmark or options.save_benchmark
    mode: str = options.mode or ("benchmark" if files else "simulate")
    if mode == "simulate" and files:
        raise UserError("--mode: simulate uses no benchmark; omit --load-benchmark and --save-benchmark")
    if options.load_benchmark and options.save_benchmark:
        raise UserError("--save-benchmark: what is loaded is in a file already; omit one of the two")
    return mode


def _check(options: argparse.Namespace) -> None:
    """UserError for options that are wrong whatever the run is."""
    with Checks() as checks:
        with checks.one():
            margin = options.safety_margin
            if margin is not None and not (math.isfinite(margin) and 0 <= margin <= 1):
                raise UserError(f"--safety-margin: {as_given(margin)} is not a share; give a number from 0 to 1")
        checks.run(cli.require_positive, options, "benchmark_gpus")
        checks.run(cli.require_writable, "--save-benchmark", options.save_benchmark)
        if options.timeline is not None:
            checks.run(cli.require_output, "--timeline", options.timeline, SUFFIXES)
            checks.run(require_library, "matplotlib")


def _margin(options: argparse.Namespace) -> float:
    return SAFETY_MARGIN if options.safety_margin is None else float(options.safety_margin)


def _restored(options: argparse.Namespace, run: TrainingRun, memory: MemoryEstimate) -> RestoredMemory:
    """The peak as the benchmark restores it, which is loaded or else taken here."""
    if options.load_benchmark:
        with naming("--load-benchmark"):
            benchmark = load_memory_benchmark(options.load_benchmark)
    else:
        benchmark = run_memory_benchmark(run, options.benchmark_gpus or 1, report=log)
    if options.save_benchmark:
        cli.write_json("--save-benchmark", options.save_benchmark, {"memory": as_json(benchmark)})
    source = str(options.load_benchmark or "benchmark")
    return restore_memory(run, benchmark, margin=_margin(options), source=source).on_device(memory)
