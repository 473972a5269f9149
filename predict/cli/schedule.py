"""`predict schedule`: pipeline schedules timed with given stage times, or those of a run config."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.cli.options import (
    add_calibration,
    add_check,
    add_command,
    add_data,
    add_json,
    add_overrides,
    cannot_write,
    check_fit,
    flag,
    given,
    loaded,
    log,
    print_json,
    require_positive,
    require_suffix,
    require_writable,
)
from sampling.errors import UserError
from sampling.extras import require_library

if TYPE_CHECKING:
    from predict.run.training_run import TrainingRun
    from predict.schedules.compare import Outcome
    from predict.schedules.stage_times import StageTable

DESCRIPTION = """\
Time pipeline schedules exactly, and compare them: makespan, bubble, peak activations, picture.

The stage times come from a run config, from a file, or from options. Bubble is 1 − mean busy time / makespan; of the span
it is 1 − busiest rank / longest span of a rank, which is what steps that follow each other without a gap would see. Under a
config, schedules that do not fit the device's memory are listed, but not chosen.
"""
EXAMPLES = """\
examples:
  predict schedule --pp 4 --microbatches 8 --schedule all
  predict schedule --pp 4 --vpp 2 --microbatches 12 --forward 1 --backward-input 1.1 --backward-weight 0.8 --p2p 0.05
  predict schedule --stage-times stages.json --microbatches 32 --schedule zb-auto --memory-limit 8 --plot zb.svg
  predict schedule configs/runs/demo.yml --schedule 1f1b,zb-h1 --json
"""
COUNTS = ("pp", "vpp", "microbatches")
TIMES = ("forward", "backward_input", "backward_weight", "p2p", "overlap_gain")
FILES = ("order", "trace", "plot")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Schedules that were timed, the best first, what they were timed for, and how a time is written."""

    outcomes: list[Outcome]
    ranks: int
    chunks: int
    microbatches: int
    source: str
    memory_limit: int | None
    show: Callable[[float], str]
    run: TrainingRun | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What the times of `run` rest on."""
    misfit: str = ""
    """Why none of the schedules fits the device of `run`, which is the only reason why none is a choice."""

    @property
    def heading(self) -> str:
        of = [self.run.name] if self.run else []
        parts = [f"{self.ranks} pipeline ranks", f"{self.microbatches:,} microbatches", *of, self.source]
        parts[1:1] = [f"{self.chunks} chunks each"] if self.chunks > 1 else []
        limit = [f"at most {self.memory_limit} chunk activations"] if self.memory_limit else []
        return ", ".join(parts + limit)

    def about(self, best: Outcome) -> str:
        """The line below the title of a picture: the run under the schedule `best`, or the counts and times given."""
        from predict.report.run_text import run_text

        if self.run is None:
            return self.heading
        run = replace(self.run, plan=replace(self.run.plan, schedule=best.name))
        return f"{run.name}: {run_text(run)}; {self.source}"


def add(subcommands: Any) -> None:
    command = add_command(
        subcommands, "schedule", "time and compare pipeline schedules", EXAMPLES, description=DESCRIPTION
    )
    command.add_argument("config", metavar="CONFIG", nargs="?", help="run config (YAML) whose stage times to take")
    add_overrides(command)
    add_data(command)
    add_calibration(command)
    times = command.add_argument_group("stage times without a config, in any one unit; times of one chunk")
    times.add_argument("--stage-times", type=Path, metavar="FILE.json", help="times by rank and chunk")
    times.add_argument("--pp", type=int, metavar="N", help="pipeline ranks")
    times.add_argument("--vpp", type=int, metavar="N", help="chunks per rank (default: 1)")
    times.add_argument("--microbatches", type=int, metavar="N", help="microbatches per step")
    times.add_argument("--forward", type=float, metavar="TIME", help="forward (default: 1)")
    times.add_argument("--backward-input", type=float, metavar="TIME", help="gradient of the input (default: 1)")
    times.add_argument("--backward-weight", type=float, metavar="TIME", help="gradient of the weights (default: 1)")
    times.add_argument("--p2p", type=float, metavar="TIME", help="transfer to the next stage (default: 0)")
    times.add_argument(
        "--overlap-gain",
        type=float,
        metavar="SHARE",
        help="share of the shorter half of a DualPipe pair that hides behind the longer one, 0 to 1 (default: 0)",
    )
    choice = command.add_argument_group("schedules")
    choice.add_argument(
        "--schedule",
        metavar="NAME[,NAME…]|all",
        help="names, or .csv or .json files with an order (default: that of the config, else all)",
    )
    choice.add_argument(
        "--memory-limit",
        type=int,
        metavar="N",
        help="most chunk activations a rank may hold, each until its W (BW) is done",
    )
    choice.add_argument("--blocking", action="store_true", help="a rank waits until what it sends has arrived")
    result = command.add_argument_group("results; files are of the best schedule")
    add_json(result)
    add_check(result)
    result.add_argument("--order", type=Path, metavar="FILE", help="write its order: .csv (torch's format) or .json")
    result.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    result.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg or .png")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict.schedules.compare import best, best_or_nearest

    _check(options)
    found = _of_config(options) if options.config is not None else _of_stage_times(options)
    choice = best_or_nearest(found.outcomes)
    faults = _write_files(options, choice, found) if choice else []
    _print(options, found)
    if choice is None:
        best(found.outcomes)  # raises the reasons
    if faults:
        raise UserError("\n".join(faults))
    check_fit(options, [found.misfit])


def _print(options: argparse.Namespace, found: Comparison) -> None:
    from predict.report.schedules.comparison import comparison_json, comparison_text

    if options.json:
        content = comparison_json(found.outcomes)
        content |= {"feasible": not found.misfit, "provenance": dict(found.provenance)} if found.run else {}
        print_json(content)
        return
    from predict.report.console import show, width

    report = comparison_text(found.outcomes, head=found.heading, show=found.show, width=width())
    if found.run:
        from predict.report.feasibility import headlines
        from predict.report.provenance_text import with_provenance

        analytic, first = found.provenance["samples"] is None, headlines([found.misfit])
        report = with_provenance(report, found.run, found.provenance, analytic=analytic, first=first)
    show(report)


def _names(asked: str) -> list[str]:
    from predict.schedules import names
    from predict.schedules.files.order_files import is_order_file
    from sampling.files.faults import did_you_mean, shown

    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if not parts:
        raise UserError(f"--schedule: {asked!r}: no schedule is named; give all, or some of {', '.join(names())}")
    for part in parts:
        if part not in ("all", *names()) and not is_order_file(part):
            near = did_you_mean(part, names()) or f"; give all, some of {', '.join(names())}, or files .csv or .json"
            raise UserError(f"--schedule: {shown(part)} is not a schedule{near}")
    return [name for part in parts for name in (names() if part == "all" else [part])]


def _check(options: argparse.Namespace) -> None:
    """UserError for options that are wrong whatever the schedules are."""
    from predict.report.pictures.figure_file import SUFFIXES
    from predict.schedules.files.order_files import FORMATS

    if options.schedule is not None:
        _names(options.schedule)
    if options.config == "":
        raise UserError("CONFIG: the path is empty; give the path of a run config, or omit it")
    require_positive(options, *COUNTS, "memory_limit")
    if options.stage_times == Path():
        raise UserError("--stage-times: the path is empty; give the path of a file")
    if options.plot is not None:
        require_library("matplotlib")
    for name, suffixes in (("order", FORMATS), ("trace", ()), ("plot", SUFFIXES)):
        path = getattr(options, name)
        if suffixes and path != Path():
            require_suffix(flag(name), path, suffixes)
        require_writable(flag(name), path)
    paths = [path.resolve() for name in FILES if (path := getattr(options, name))]
    if len(set(paths)) < len(paths):
        raise UserError("--order, --trace, --plot: two of them name the same file; give each its own")


def _of_stage_times(options: argparse.Namespace) -> Comparison:
    from predict.schedules.compare import compare, timed_alike

    if changes := given(options, "overrides", "calibration"):
        raise UserError(
            f"{', '.join(changes)} changes a config; give a CONFIG, or --pp, --microbatches and times instead"
        )
    if options.stage_times is None and options.pp is None:
        raise UserError("nothing to time; give a CONFIG, or --microbatches with --pp or with --stage-times FILE.json")
    if options.microbatches is None:
        raise UserError("--microbatches: missing; give the microbatches of a step, or a CONFIG")
    table, source = _stage_table(options)
    counts = {"ranks": table.ranks, "chunks": table.chunks, "microbatches": options.microbatches}
    outcomes = compare(
        _names(options.schedule or "all"),
        **counts,
        timed=timed_alike(**counts, times=table.times, memory_limit=options.memory_limit, blocking=options.blocking),
        refusal=table.refusal,
        memory_limit=options.memory_limit,
        chunk_bytes=table.activation_bytes,
    )
    return Comparison(
        outcomes=outcomes,
        **counts,
        source=source,
        memory_limit=options.memory_limit,
        show=lambda time: f"{time:,.6g}",
    )


def _stage_table(options: argparse.Namespace) -> tuple[StageTable, str]:
    """The times given by file or by options, and where they come from."""
    from predict.schedules.engine.costs import LONGEST, ChunkTimes
    from predict.schedules.stage_times import StageTable, read_stage_times

    if options.stage_times is not None:
        if extra := given(options, "pp", "vpp", *TIMES):
            raise UserError(f"{', '.join(extra)}: already in --stage-times {options.stage_times}; omit one of the two")
        return read_stage_times(options.stage_times), str(options.stage_times)
    times = {"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0}
    times |= {name: getattr(options, name) for name in TIMES if getattr(options, name) is not None}
    for name, value in times.items():
        kind, most = ("share", 1.0) if name == "overlap_gain" else ("time", LONGEST)
        if not 0 <= value <= most:
            raise UserError(f"{flag(name)}: {value} is not a {kind}; give a number from 0 to {most:g}")
    table = StageTable(ranks=options.pp, chunks=options.vpp or 1, times=ChunkTimes(**times))
    return table, ", ".join(f"{name.replace('_', ' ')} {time:g}" for name, time in times.items())


def _of_config(options: argparse.Namespace) -> Comparison:
    if extra := given(options, "stage_times", *COUNTS, *TIMES):
        raise UserError(
            f"{', '.join(extra)}: a CONFIG has its own stage times; change it with --set, as in --set plan.pp=4"
        )
    from predict import estimate_as_scheduled
    from predict.prices.open import open_prices
    from predict.report.feasibility import misfit
    from predict.report.units import duration
    from predict.run.plan import BEST
    from predict.schedules.compare import best_or_nearest
    from predict.step.prediction import provenance_of
    from predict.step.scheduling import compare_schedules

    # whatever schedule the config has, those of --schedule are timed
    run = loaded(options, [f"plan.schedule={BEST}"] if options.schedule else [])
    if options.memory_limit:
        run = replace(run, plan=replace(run.plan, memory_limit=options.memory_limit))
    if options.blocking:
        run = replace(run, execution=replace(run.execution, overlap_p2p=False))
    prices = open_prices(run.cluster, run.execution)
    of_plan = _names("all") if run.plan.schedule == BEST else [run.plan.schedule]
    outcomes, predictions = compare_schedules(
        run, _names(options.schedule) if options.schedule else of_plan, partial(estimate_as_scheduled, prices=prices)
    )
    nearest = best_or_nearest(outcomes)
    provenance = predictions[nearest.name].provenance if nearest else provenance_of(run, prices)
    samples = provenance["samples"]
    source = f"times of {samples['profile']}" if samples else "analytic times"
    return Comparison(
        outcomes=outcomes,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        source=source,
        memory_limit=run.plan.memory_limit or None,
        show=duration,
        run=run,
        provenance=provenance,
        misfit=misfit(predictions[nearest.name].memory) if nearest and nearest.exceeds_device else "",
    )


def _write_files(options: argparse.Namespace, best: Outcome, found: Comparison) -> list[str]:
    """Write the files that the options name; the faults of those that cannot be written, each with its option and fix."""
    from predict.report.pictures.schedule_plot import save_plot
    from predict.report.schedules.trace import save_trace
    from predict.schedules.files.order_files import write_order

    timeline = best.timeline
    assert timeline is not None
    writers: dict[str, Callable[[Path], None]] = {
        "order": lambda path: write_order(timeline.order, path),
        "trace": lambda path: save_trace(timeline, path, name=best.name),
        "plot": lambda path: save_plot(timeline, path, title=best.name, about=found.about(best), show=found.show),
    }
    faults = []
    for name, write in writers.items():
        path = getattr(options, name)
        if path is None:
            continue
        try:
            write(path)
            log(f"wrote {path} ({best.name})")
        except UserError as error:
            faults.append(f"{flag(name)}: {path}: {error}")
        except OSError as error:
            faults.append(str(cannot_write(flag(name), path, error)))
    return faults
