"""`predict schedule`: pipeline schedules timed with given stage times, or those of a run config."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import UserError

if TYPE_CHECKING:
    from predict.schedules.compare import Outcome
    from predict.schedules.files.stage_times import StageTable

DESCRIPTION = """\
Time pipeline schedules exactly, and compare them: makespan, bubble, peak activations, picture.

The stage times come from a run config, from a file, or from options. Bubble is 1 − mean busy time / makespan; of the span
it is 1 − busiest rank / longest span of a rank, which is what steps that follow each other without a gap would see.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Head:
    """What was timed, and how to write a time."""

    ranks: int
    chunks: int
    microbatches: int
    source: str
    limit: int | None
    show: Callable[[float], str]

    def __str__(self) -> str:
        parts = [f"{self.ranks} pipeline ranks", f"{self.microbatches} microbatches", self.source]
        parts[1:1] = [f"{self.chunks} chunks each"] if self.chunks > 1 else []
        return ", ".join(parts + ([f"at most {self.limit} chunk activations"] if self.limit else []))


def add(subcommands: Any, takes_set: Callable[[argparse.ArgumentParser], None]) -> None:
    command = subcommands.add_parser(
        "schedule",
        help="time and compare pipeline schedules",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("config", metavar="CONFIG", nargs="?", help="run config (YAML) whose stage times to take")
    takes_set(command)
    given = command.add_argument_group("stage times without a config, in any one unit; times of one chunk")
    given.add_argument("--stage-times", type=Path, metavar="FILE.json", help="times by rank and chunk")
    given.add_argument("--pp", type=int, metavar="N", help="pipeline ranks")
    given.add_argument("--vpp", type=int, metavar="N", help="chunks a rank (default: 1)")
    given.add_argument("--microbatches", type=int, metavar="N", help="microbatches a step")
    given.add_argument("--forward", type=float, metavar="TIME", help="forward (default: 1)")
    given.add_argument("--backward-input", type=float, metavar="TIME", help="gradient of the input (default: 1)")
    given.add_argument("--backward-weight", type=float, metavar="TIME", help="gradient of the weights (default: 1)")
    given.add_argument("--p2p", type=float, metavar="TIME", help="transfer to the next stage (default: 0)")
    given.add_argument(
        "--overlap-gain",
        type=float,
        metavar="SHARE",
        help="of the shorter half of a DualPipe pair, what hides behind the longer one, 0 to 1 (default: 0)",
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
    result.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    result.add_argument("--order", type=Path, metavar="FILE", help="write its order: .csv (torch's format) or .json")
    result.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    result.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg or .png")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict.schedules.compare import best

    _check(options)
    head, outcomes = _of_config(options) if options.config is not None else _of_options(options)
    found = best(outcomes) if any(outcome.valid for outcome in outcomes) else None
    faults = _write_files(options, found, head.show) if found else []
    _show(options, head, outcomes)
    if found is None:
        best(outcomes)  # says why there is none
    if faults:
        raise UserError("\n".join(faults))


def _names(asked: str) -> list[str]:
    from predict.schedules import names

    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if not parts:
        raise UserError(f"--schedule: {asked!r}: no schedule is named; give all, or some of {', '.join(names())}")
    return [name for part in parts for name in (names() if part == "all" else [part])]


def _check(options: argparse.Namespace) -> None:
    """What can be told of the options before any work."""
    from predict.report.schedules.plot import SUFFIXES
    from predict.schedules.files.order_files import FORMATS

    if options.schedule is not None:
        _names(options.schedule)
    if options.config == "":
        raise UserError("CONFIG: '' names no file; give the path of a run config, or leave it out")
    for name in (*COUNTS, "memory_limit"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"{_option(name)}: {value} is not a positive number; give 1 or more")
    _check_path("--stage-times", options.stage_times)
    for option, path, suffixes in (
        ("--order", options.order, FORMATS),
        ("--trace", options.trace, ()),
        ("--plot", options.plot, SUFFIXES),
    ):
        _check_path(option, path)
        _check_result(option, path, suffixes)
    paths = [path.resolve() for path in (options.order, options.trace, options.plot) if path]
    if len(set(paths)) < len(paths):
        raise UserError("--order, --trace, --plot: two of them name the same file; give each its own")


def _check_path(option: str, path: Path | None) -> None:
    if path == Path():
        raise UserError(f"{option}: names no file; give a path")


def _check_result(option: str, path: Path | None, suffixes: Collection[str]) -> None:
    from predict.schedules.files.order_files import require_suffix

    if path is None:
        return
    if suffixes:
        try:
            require_suffix(path, suffixes)
        except UserError as error:
            raise UserError(f"{option}: {error}") from None
    if path.is_dir():
        raise UserError(f"{option}: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{option}: {path}: there is no folder {path.parent}; make it, or give another path")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(options: argparse.Namespace, names: tuple[str, ...]) -> list[str]:
    return [_option(name) for name in names if getattr(options, name) is not None]


def _of_options(options: argparse.Namespace) -> tuple[_Head, list[Outcome]]:
    from predict.schedules.compare import compare, of_equal_chunks

    if options.overrides:
        raise UserError("--set changes a config; give a CONFIG, or --pp, --microbatches and times instead")
    if options.stage_times is None and options.pp is None:
        raise UserError("nothing to time; give a CONFIG, or --microbatches with --pp or with --stage-times FILE.json")
    if options.microbatches is None:
        raise UserError("--microbatches: missing; give the microbatches of a step, or a CONFIG")
    table, source = _stage_table(options)
    outcomes = compare(
        _names(options.schedule or "all"),
        ranks=table.ranks,
        chunks=table.chunks,
        microbatches=options.microbatches,
        times=lambda name: table.times,
        refusal=table.refusal,
        memory_limit=options.memory_limit,
        chunk_bytes=table.activation_bytes,
        blocking=options.blocking,
        cost=of_equal_chunks,
    )
    head = _Head(
        ranks=table.ranks,
        chunks=table.chunks,
        microbatches=options.microbatches,
        source=source,
        limit=options.memory_limit,
        show=lambda time: f"{time:,.6g}",
    )
    return head, outcomes


def _stage_table(options: argparse.Namespace) -> tuple[StageTable, str]:
    """The times given by file or by options, and where they come from."""
    from predict.schedules.costs import LONGEST, ChunkTimes
    from predict.schedules.files.stage_times import StageTable, read_stage_times

    if options.stage_times is not None:
        extra = _given(options, ("pp", "vpp", *TIMES))
        if extra:
            raise UserError(f"{', '.join(extra)}: already told by --stage-times {options.stage_times}; leave one out")
        return read_stage_times(options.stage_times), str(options.stage_times)
    times = {"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0}
    times |= {name: getattr(options, name) for name in TIMES if getattr(options, name) is not None}
    for name, value in times.items():
        kind, most = ("share", 1.0) if name == "overlap_gain" else ("time", LONGEST)
        if not 0 <= value <= most:
            raise UserError(f"{_option(name)}: {value} is no {kind}; give a number from 0 to {most:g}")
    table = StageTable(ranks=options.pp, chunks=options.vpp or 1, times=ChunkTimes(**times))
    return table, ", ".join(f"{name.replace('_', ' ')} {time:g}" for name, time in times.items())


def _of_config(options: argparse.Namespace) -> tuple[_Head, list[Outcome]]:
    extra = _given(options, ("stage_times", *COUNTS, *TIMES))
    if extra:
        raise UserError(
            f"{', '.join(extra)}: a CONFIG tells its own stage times; change it with --set, as in --set plan.pp=4"
        )
    from predict.config.load import load
    from predict.prices.open import open_prices
    from predict.report.units import duration
    from predict.run.plan import BEST
    from predict.step.schedule_choice import compare_schedules

    # Whatever schedule the config has, it is those of --schedule that are to run.
    overrides = [*options.overrides, *([f"plan.schedule={BEST}"] if options.schedule else [])]
    run = load(options.config, overrides)
    prices, provenance = open_prices(run.cluster, run.execution)
    of_plan = _names("all") if run.plan.schedule == BEST else [run.plan.schedule]
    asked = _names(options.schedule) if options.schedule else of_plan
    limit = options.memory_limit or run.plan.memory_limit or None
    outcomes = compare_schedules(run, prices, asked, memory_limit=limit, blocking=options.blocking)
    source = "analytic times" if provenance["samples"] is None else f"times of {run.cluster.profile}"
    head = _Head(
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        source=f"{run.name}, {source}",
        limit=limit,
        show=duration,
    )
    return head, outcomes


def _show(options: argparse.Namespace, head: _Head, outcomes: list[Outcome]) -> None:
    from predict.report.schedules.comparison import comparison_json, comparison_text

    if options.json:
        print(json.dumps(comparison_json(outcomes), indent=1))
        return
    from predict.report.console import show, width

    show(comparison_text(outcomes, head=str(head), show=head.show, width=width()))


def _write_files(options: argparse.Namespace, best: Outcome, show: Callable[[float], str]) -> list[str]:
    """Write what the options ask for; what cannot be written, by option and with the fix, is returned."""
    timeline = best.timeline
    assert timeline is not None

    def order(path: Path) -> None:
        from predict.schedules.files.order_files import write_order

        write_order(timeline.order, path)

    def trace(path: Path) -> None:
        from predict.report.schedules.trace import save_trace

        save_trace(timeline, path, name=best.name)

    def plot(path: Path) -> None:
        from predict.report.schedules.plot import save_plot

        save_plot(timeline, path, title=best.name, show=show)

    faults = []
    for write in (order, trace, plot):
        path = getattr(options, write.__name__)
        if path is None:
            continue
        try:
            write(path)
            print(f"wrote {path} ({best.name})", file=sys.stderr)
        except UserError as error:
            faults.append(f"--{write.__name__}: {path}: {error}")
        except OSError as error:
            reason = error.strerror or error
            faults.append(f"--{write.__name__}: {path}: cannot be written: {reason}; give another path")
    return faults
