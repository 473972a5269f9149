"""`predict schedule`: pipeline schedules timed with given stage times, or those of a run config."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from predict.cli import options as cli
from predict.config.overrides import flag
from predict.plan_search.timed_schedules import TimedSchedules, names_of, schedule
from predict.reports.memory import headlines, misfit
from predict.reports.pictures.figure_file import SUFFIXES
from predict.reports.pictures.schedule_plot import save_plot
from predict.reports.schedule import comparison_json, comparison_text
from predict.reports.text import run_text, show, width, with_provenance
from predict.reports.traces.chrome import save_trace
from predict.run.plan import BEST
from predict.schedules.compare import ScheduleOutcome, best, best_or_nearest
from predict.schedules.engine.costs import LONGEST
from predict.schedules.order_files import FORMATS, write_order
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.extras import require_library
from sampling.number_text import plain

COUNTS = ("pp", "vpp", "microbatches")
TIMES = ("forward", "backward_input", "backward_weight", "p2p", "overlap_gain")

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
  predict schedule --stage-times stages.json --microbatches 32 --schedule zb-auto --memory-limit 8 --plot out/zb.svg
  predict schedule configs/runs/demo.yml --schedule 1f1b,zb-h1 --json
"""
FILES = ("order", "trace", "plot")


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", nargs="?", help="run config (YAML) whose stage times to take")
    cli.add_settings(command)
    cli.add_calibration(command)
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
        help="names, or .csv or .json files with an order (default: the config's, else all)",
    )
    choice.add_argument(
        "--memory-limit",
        type=int,
        metavar="N",
        help="most chunk activations a rank may hold, each until its W (BW) is done",
    )
    choice.add_argument("--blocking", action="store_true", help="a rank waits until what it sends has arrived")
    result = command.add_argument_group("results; files show the best schedule")
    cli.add_json(result)
    cli.add_check(result)
    result.add_argument("--order", type=Path, metavar="FILE", help="write its order: .csv (torch's format) or .json")
    result.add_argument("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    result.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg or .png")


def run(options: argparse.Namespace) -> None:
    _check(options)
    found = _timed(options)
    choice = best_or_nearest(found.outcomes)
    faults = _write_files(options, choice, found) if choice else []
    why = misfit(found.too_large) if found.too_large else ""
    _print(options, found, why)
    if choice is None:
        best(found.outcomes)  # raises the reasons
    if faults:
        raise UserError("\n".join(faults))
    cli.check_fit(options, [why], said=True)


def _timed(options: argparse.Namespace) -> TimedSchedules:
    if options.config is not None:
        # whatever schedule the config has, those of --schedule are timed
        run = cli.loaded(options, [f"plan.schedule={BEST}"] if options.schedule else [])
        return schedule(run, schedules=options.schedule, memory_limit=options.memory_limit, blocking=options.blocking)
    return schedule(
        schedules=options.schedule,
        stage_times=options.stage_times,
        pp=options.pp or 1,
        vpp=options.vpp or 1,
        microbatches=options.microbatches,
        times={name: time for name in TIMES if (time := getattr(options, name)) is not None},
        memory_limit=options.memory_limit,
        blocking=options.blocking,
    )


def _print(options: argparse.Namespace, found: TimedSchedules, why: str) -> None:
    if options.json:
        content = comparison_json(found.outcomes)
        content |= {"feasible": not why, "provenance": dict(found.provenance)} if found.run else {}
        cli.print_json(content)
        return
    report = comparison_text(found.outcomes, head=found.heading, show=found.show, width=width())
    if found.run:
        analytic = found.provenance["samples"] is None
        report = with_provenance(report, found.run, found.provenance, analytic=analytic, first=headlines([why]))
    show(report)


def _about(found: TimedSchedules, best: ScheduleOutcome) -> str:
    """The line below the title of a picture: the run under the schedule `best`, or the counts and times given."""
    if found.run is None:
        return found.heading
    run = replace(found.run, plan=replace(found.run.plan, schedule=best.name))
    return f"{run.name}: {run_text(run)}; {found.source}"


def _check(options: argparse.Namespace) -> None:
    """UserError with every fault of the options, before anything is timed."""
    with Checks() as checks:
        if options.schedule is not None:
            checks.run(names_of, options.schedule)
        checks.run(cli.require_positive, options, *COUNTS, "memory_limit")
        checks.run(_check_times, options)
        checks.run(_check_files, options)


def _check_times(options: argparse.Namespace) -> None:
    """UserError with every fault of the options that say whose stage times are taken."""
    if options.config is not None:
        if extra := cli.given(options, "stage_times", *COUNTS, *TIMES):
            raise UserError(
                f"{', '.join(extra)}: a CONFIG has its own stage times; change it with --set, as in --set plan.pp=4"
            )
        return
    with Checks() as checks:
        with checks.one():
            if changes := cli.given(options, "overrides", "calibration"):
                raise UserError(
                    f"{', '.join(changes)} changes a config; give a CONFIG, or --pp, --microbatches and times instead"
                )
        checks.run(_require_times, options)
        for name in TIMES:
            checks.run(_require_within, name, getattr(options, name))


def _require_times(options: argparse.Namespace) -> None:
    """UserError unless stage times and microbatches are given, each once."""
    if options.stage_times is None and options.pp is None:
        raise UserError("nothing to time; give a CONFIG, or --microbatches with --pp or with --stage-times FILE.json")
    with Checks() as checks:
        with checks.one():
            if options.microbatches is None:
                raise UserError("--microbatches: missing; give the microbatches of a step, or a CONFIG")
        with checks.one():
            if options.stage_times is not None and (extra := cli.given(options, "pp", "vpp", *TIMES)):
                raise UserError(
                    f"{', '.join(extra)}: already in --stage-times {options.stage_times}; omit one of the two"
                )


def _require_within(name: str, value: float | None) -> None:
    kind, most = ("share", 1.0) if name == "overlap_gain" else ("time", LONGEST)
    if value is not None and not 0 <= value <= most:
        raise UserError(f"{flag(name)}: {value} is not a {kind}; give a number from 0 to {plain(most)}")


def _check_files(options: argparse.Namespace) -> None:
    with Checks() as checks:
        if options.plot is not None:
            checks.run(require_library, "matplotlib")
        checks.run(cli.require_output, "--order", options.order, FORMATS)
        checks.run(cli.require_writable, "--trace", options.trace)
        checks.run(cli.require_output, "--plot", options.plot, SUFFIXES)
        with checks.one():
            paths = [path.resolve() for name in FILES if (path := getattr(options, name)) not in (None, Path())]
            if len(set(paths)) < len(paths):
                raise UserError("--order, --trace, --plot: two of them name the same file; give each its own")


def _write_files(options: argparse.Namespace, best: ScheduleOutcome, found: TimedSchedules) -> list[str]:
    """Write the files that the options name; the faults of those that cannot be written, each with its option and fix."""
    timeline = best.timeline
    assert timeline is not None
    writers: dict[str, Callable[[Path], None]] = {
        "order": lambda path: write_order(timeline.order, path),
        "trace": lambda path: save_trace(timeline, path, name=best.name),
        "plot": lambda path: save_plot(timeline, path, title=best.name, about=_about(found, best), show=found.show),
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
            faults.append(str(cli.cannot_write(flag(name), path, error)))
    return faults
