"""`predict memory`: whether a run fits on its GPUs, when it holds the most, and what would make it fit."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.cli.benchmark import Add
from sampling.errors import InfeasibleError, UserError

if TYPE_CHECKING:
    from predict.anchor.restored_memory import Restored
    from predict.memory.advice import Advice
    from predict.memory.estimate import MemoryEstimate
    from predict.run.training_run import TrainingRun
    from predict.step.estimate import StepEstimate

DESCRIPTION = """\
Predict the memory of each pipeline rank: state, live activations by the run's own schedule, the action in progress, buffers.

FITS, AT RISK (only the upper bound does not fit) or OOM (the expected peak does not fit). Where it does not fit, the single
changes that make it fit are tried and told with what they cost in step time.
"""
EXAMPLES = """\
examples:
  predict memory configs/runs/llama3-70b-64xh100.yml
  predict memory configs/runs/llama3-70b-64xh100.yml --set batch.micro=4 --timeline memory.svg
  predict memory configs/runs/llama3-70b-64xh100.yml --check --json
  predict memory configs/runs/demo.yml --mode both --save-benchmark memory.json
"""
DEFAULT_MARGIN = 0.05
MODES = ("simulate", "benchmark", "both")


def add(subcommands: Any, takes_config: Add) -> None:
    command = subcommands.add_parser(
        "memory",
        help="predict whether a run fits, and its peak memory",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes_config(command)
    command.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    command.add_argument(
        "--safety-margin",
        type=float,
        default=DEFAULT_MARGIN,
        metavar="SHARE",
        help="of the expected peak (of what a benchmark could not explain), for what the terms miss; part of the upper bound "
        "(default: %(default)s)",
    )
    command.add_argument(
        "--target-nodes", type=int, metavar="N", help="share the same global batch among the replicas of N nodes"
    )
    command.add_argument("--timeline", type=Path, metavar="FILE", help="draw memory over the step: .svg or .png")
    command.add_argument("--check", action="store_true", help="exit with 4 where the run does not fit")
    command.add_argument("--formula", choices=("seed",), help="print the seed's published formulas beside it")
    anchored = command.add_argument_group("benchmark mode: the reduced run is trained here, and its bytes counted")
    anchored.add_argument(
        "--mode", choices=MODES, help="default: benchmark where one is loaded or saved, else simulate"
    )
    anchored.add_argument("--gpus", type=int, default=1, metavar="N", help="devices to reduce the run to (default: 1)")
    anchored.add_argument("--save-benchmark", type=Path, metavar="FILE", help="write what was counted there")
    anchored.add_argument("--load-benchmark", type=Path, metavar="FILE", help="take what was counted from there")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    mode = _mode(options)
    _check_options(options)
    from predict.memory.advice import advise
    from predict.memory.estimate import memory_of_step
    from predict.prices.open import open_prices
    from predict.step.estimate import estimate

    asked = _run(options)
    prices, provenance = open_prices(asked.cluster, asked.execution)
    step = estimate(asked, prices, provenance)
    memory = memory_of_step(step, safety_margin=options.safety_margin)
    restored = _restored(options, step.run, memory) if mode != "simulate" else None
    _show(options, memory, advise(step.run, memory, prices), restored, mode)
    if options.timeline:
        _draw(step, memory, options.timeline)
    verdict = restored.verdict(memory.capacity_bytes) if restored and mode == "benchmark" else memory.verdict
    if options.check and verdict == "OOM":
        point = restored.point_bytes if restored and mode == "benchmark" else memory.point_bytes
        raise InfeasibleError(_does_not_fit(memory, point))


def _mode(options: argparse.Namespace) -> str:
    files = options.load_benchmark or options.save_benchmark
    mode: str = options.mode or ("benchmark" if files else "simulate")
    if mode == "simulate" and files:
        raise UserError("--mode: simulate uses no benchmark; leave --load-benchmark and --save-benchmark away")
    if options.load_benchmark and options.save_benchmark:
        raise UserError("--save-benchmark: what is loaded is in a file already; leave one of the two away")
    return mode


def _check_options(options: argparse.Namespace) -> None:
    """What can be told of the options before any work."""
    if not (math.isfinite(options.safety_margin) and 0 <= options.safety_margin <= 1):
        raise UserError(f"--safety-margin: {options.safety_margin:g} is no share; give a number from 0 to 1")
    if options.gpus < 1:
        raise UserError(f"--gpus: {options.gpus} is not a positive number; give 1 or more")
    _check_place("--save-benchmark", options.save_benchmark)
    if options.timeline is None:
        return
    from predict.report.memory_plot import SUFFIXES
    from predict.schedules.files.order_files import require_suffix

    try:
        require_suffix(options.timeline, SUFFIXES)
    except UserError as error:
        raise UserError(f"--timeline: {error}") from None
    _check_place("--timeline", options.timeline)


def _check_place(option: str, path: Path | None) -> None:
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option}: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{option}: {path}: there is no folder {path.parent}; make it, or give another path")


def _run(options: argparse.Namespace) -> TrainingRun:
    from predict.config.load import load

    asked = load(options.config, options.overrides)
    if options.target_nodes is None:
        return asked
    from predict.run.target_nodes import settings_for_nodes

    return load(options.config, [*options.overrides, *settings_for_nodes(asked, options.target_nodes)])


def _restored(options: argparse.Namespace, asked: TrainingRun, memory: MemoryEstimate) -> Restored:
    """From the benchmark that is loaded, or else taken here."""
    from predict.anchor.analytic_terms import analytic_terms
    from predict.anchor.restored_memory import Restored
    from predict.measure.benchmark.memory_benchmark import restore, run_memory_benchmark

    if options.load_benchmark:
        artifact = _read_benchmark(options.load_benchmark)
    else:
        artifact = run_memory_benchmark(asked, options.gpus, tell=_note)
    if options.save_benchmark:
        _write_benchmark(options.save_benchmark, artifact)
    place = str(options.load_benchmark or "benchmark")
    point, upper, terms = restore(asked, artifact, analytic_terms, margin=options.safety_margin, place=place)
    return Restored.on_device(point, upper, terms, memory=memory)


def _read_benchmark(path: Path) -> Any:
    """The memory part of a file of `predict benchmark`, or a file of --save-benchmark; `restore` finds its faults."""
    from sampling.files.documents import read_json
    from sampling.files.faults import config_error

    content, faults = read_json(path)
    if content is None or faults:
        raise config_error(faults, {"": f"--load-benchmark: {path}"})
    if "memory" not in content:
        raise UserError(
            f"--load-benchmark: {path}: memory: missing; write it with `predict memory CONFIG --save-benchmark FILE`"
        )
    return content["memory"]


def _write_benchmark(path: Path, artifact: Any) -> None:
    from sampling.files.disk import write_atomically

    try:
        write_atomically(path, f"{json.dumps({'memory': artifact}, indent=1)}\n".encode())
    except OSError as error:
        raise UserError(f"--save-benchmark: {path} cannot be written ({error.strerror}); give another path") from None


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _show(
    options: argparse.Namespace,
    memory: MemoryEstimate,
    advice: tuple[Advice, ...],
    restored: Restored | None,
    mode: str,
) -> None:
    if options.json:
        print(json.dumps(_content(options, memory, advice, restored, mode), indent=1))
        return
    from predict.report.console import show
    from predict.report.memory_text import memory_text, restored_lines

    simulated = memory_text(memory, advice)
    if restored is None:
        show(simulated)
    else:
        measured = "\n".join(restored_lines(restored, memory.capacity_bytes))
        first, second = (
            (f"{measured}\n\nsimulated:", simulated) if mode == "benchmark" else (simulated, f"\n{measured}")
        )
        show(first)
        show(second)
    if options.formula:
        from predict.memory.seed.formula import seed_formula

        show("\n".join(["", *seed_formula(memory.run, pipeline_rank=memory.worst.rank).lines()]))


def _content(
    options: argparse.Namespace,
    memory: MemoryEstimate,
    advice: tuple[Advice, ...],
    restored: Restored | None,
    mode: str,
) -> dict[str, Any]:
    """In benchmark mode point, upper bound and verdict are the benchmark's."""
    from predict.report.memory_json import memory_json

    content = memory_json(memory, advice) | {"mode": mode}
    if restored:
        told = restored.to_json(memory.capacity_bytes)
        content["benchmark"] = told
        if mode == "benchmark":
            content |= {key: value for key, value in told.items() if key != "terms"}
    if options.formula:
        from predict.memory.seed.formula import seed_formula

        content["seed"] = seed_formula(memory.run, pipeline_rank=memory.worst.rank).as_json()
    return content


def _draw(step: StepEstimate, memory: MemoryEstimate, path: Path) -> None:
    from predict.memory.memory_timeline import memory_timeline
    from predict.report.memory_plot import save_memory_plot

    try:
        save_memory_plot(memory_timeline(step), memory, path)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"--timeline: {path}: cannot be written: {reason}; give another path") from None
    _note(f"wrote {path}")


def _does_not_fit(memory: MemoryEstimate, point_bytes: float) -> str:
    from predict.report.memory_text import size

    return (
        f"cluster.hardware: {memory.run.name} needs {size(point_bytes)} on a GPU of its fullest pipeline rank, and "
        f"{memory.run.cluster.gpu.name} has {size(memory.capacity_bytes)}; take a change that `predict memory` advises where it "
        "has one, or a device with more"
    )
