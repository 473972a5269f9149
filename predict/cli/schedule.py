"""`predict schedule`: pipeline schedules timed with given stage times, or those of a run config."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from predict.cli.options import (
    add_calibration,
    add_check,
    add_data,
    add_json,
    add_overrides,
    cannot_write,
    check_fit,
    flag,
    log,
    print_json,
    require_output,
    require_positive,
    require_writable,
)
from predict.cli.schedule_timed import COUNTS, Comparison, check_times, names_of, of_config, of_stage_times
from sampling.errors import Checks, UserError
from sampling.extras import require_library

if TYPE_CHECKING:
    from predict.schedules.compare import Outcome

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
FILES = ("order", "trace", "plot")


def add_options(command: argparse.ArgumentParser) -> None:
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


def run(options: argparse.Namespace) -> None:
    from predict.schedules.compare import best, best_or_nearest

    _check(options)
    found = of_config(options) if options.config is not None else of_stage_times(options)
    choice = best_or_nearest(found.outcomes)
    faults = _write_files(options, choice, found) if choice else []
    _print(options, found)
    if choice is None:
        best(found.outcomes)  # raises the reasons
    if faults:
        raise UserError("\n".join(faults))
    check_fit(options, [found.misfit], said=not options.json)


def _print(options: argparse.Namespace, found: Comparison) -> None:
    from predict.reports.schedule import comparison_json, comparison_text

    if options.json:
        content = comparison_json(found.outcomes)
        content |= {"feasible": not found.misfit, "provenance": dict(found.provenance)} if found.run else {}
        print_json(content)
        return
    from predict.reports.text import show, width

    report = comparison_text(found.outcomes, head=found.heading, show=found.show, width=width())
    if found.run:
        from predict.reports.memory import headlines
        from predict.reports.text import with_provenance

        analytic, first = found.provenance["samples"] is None, headlines([found.misfit])
        report = with_provenance(report, found.run, found.provenance, analytic=analytic, first=first)
    show(report)


def _check(options: argparse.Namespace) -> None:
    """UserError with every fault of the options, before anything is timed."""
    with Checks() as checks:
        if options.schedule is not None:
            checks.run(names_of, options.schedule)
        with checks.one():
            if options.config == "":
                raise UserError("CONFIG: the path is empty; give the path of a run config, or omit it")
        checks.run(require_positive, options, *COUNTS, "memory_limit")
        checks.run(check_times, options)
        checks.run(_check_files, options)


def _check_files(options: argparse.Namespace) -> None:
    from predict.reports.pictures.figure_file import SUFFIXES
    from predict.schedules.order_files import FORMATS

    with Checks() as checks:
        if options.plot is not None:
            checks.run(require_library, "matplotlib")
        checks.run(require_output, "--order", options.order, FORMATS)
        checks.run(require_writable, "--trace", options.trace)
        checks.run(require_output, "--plot", options.plot, SUFFIXES)
        with checks.one():
            paths = [path.resolve() for name in FILES if (path := getattr(options, name)) not in (None, Path())]
            if len(set(paths)) < len(paths):
                raise UserError("--order, --trace, --plot: two of them name the same file; give each its own")


def _write_files(options: argparse.Namespace, best: Outcome, found: Comparison) -> list[str]:
    """Write the files that the options name; the faults of those that cannot be written, each with its option and fix."""
    from predict.reports.pictures.schedule_plot import save_plot
    from predict.reports.traces.chrome import save_trace
    from predict.schedules.order_files import write_order

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
