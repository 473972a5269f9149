"""Schedules timed with the stage times of a run config, of a file or of options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.cli.options import flag, given, loaded, naming
from sampling.errors import Checks, UserError

if TYPE_CHECKING:
    from predict.run.training_run import TrainingRun
    from predict.schedules.compare import Outcome
    from predict.schedules.stage_times import StageTable

COUNTS = ("pp", "vpp", "microbatches")
TIMES = ("forward", "backward_input", "backward_weight", "p2p", "overlap_gain")


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
    """Provenance of the times of `run`."""
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
        from predict.reports.text import run_text

        if self.run is None:
            return self.heading
        run = replace(self.run, plan=replace(self.run.plan, schedule=best.name))
        return f"{run.name}: {run_text(run)}; {self.source}"


def names_of(asked: str) -> list[str]:
    """The schedules that --schedule names; UserError with a line for each part that is none."""
    from predict.schedules import names
    from predict.schedules.order_files import is_order_file
    from sampling.files.faults import did_you_mean, shown

    parts = [part.strip() for part in asked.split(",") if part.strip()]
    if not parts:
        raise UserError(f"--schedule: {asked!r}: no schedule is named; give all, or some of {', '.join(names())}")
    with Checks() as checks:
        for part in parts:
            if part not in ("all", *names()) and not is_order_file(part):
                near = (
                    did_you_mean(part, names()) or f"; give all, some of {', '.join(names())}, or files .csv or .json"
                )
                with checks.one():
                    raise UserError(f"--schedule: {shown(part)} is not a schedule{near}")
    return [name for part in parts for name in (names() if part == "all" else [part])]


def check_times(options: argparse.Namespace) -> None:
    """UserError with every fault of the options that say whose stage times are taken."""
    if options.config is not None:
        if extra := given(options, "stage_times", *COUNTS, *TIMES):
            raise UserError(
                f"{', '.join(extra)}: a CONFIG has its own stage times; change it with --set, as in --set plan.pp=4"
            )
        return
    with Checks() as checks:
        with checks.one():
            if changes := given(options, "overrides", "calibration"):
                raise UserError(
                    f"{', '.join(changes)} changes a config; give a CONFIG, or --pp, --microbatches and times instead"
                )
        checks.run(_require_times, options)
        for name in TIMES:
            checks.run(_require_within, name, getattr(options, name))


def _require_times(options: argparse.Namespace) -> None:
    """UserError unless stage times and microbatches are given, each once."""
    if options.stage_times == Path():
        raise UserError("--stage-times: the path is empty; give the path of a file")
    if options.stage_times is None and options.pp is None:
        raise UserError("nothing to time; give a CONFIG, or --microbatches with --pp or with --stage-times FILE.json")
    with Checks() as checks:
        with checks.one():
            if options.microbatches is None:
                raise UserError("--microbatches: missing; give the microbatches of a step, or a CONFIG")
        with checks.one():
            if options.stage_times is not None and (extra := given(options, "pp", "vpp", *TIMES)):
                raise UserError(
                    f"{', '.join(extra)}: already in --stage-times {options.stage_times}; omit one of the two"
                )


def _require_within(name: str, value: float | None) -> None:
    from predict.schedules.engine.costs import LONGEST

    kind, most = ("share", 1.0) if name == "overlap_gain" else ("time", LONGEST)
    if value is not None and not 0 <= value <= most:
        raise UserError(f"{flag(name)}: {value} is not a {kind}; give a number from 0 to {most:g}")


def of_stage_times(options: argparse.Namespace) -> Comparison:
    from predict.schedules.compare import compare, timed_alike

    table, source = _stage_table(options)
    counts = {"ranks": table.ranks, "chunks": table.chunks, "microbatches": options.microbatches}
    outcomes = compare(
        names_of(options.schedule or "all"),
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
    from predict.schedules.engine.costs import ChunkTimes
    from predict.schedules.stage_times import StageTable, read_stage_times

    if options.stage_times is not None:
        with naming("--stage-times"):
            return read_stage_times(options.stage_times), str(options.stage_times)
    times = {"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0}
    times |= {name: getattr(options, name) for name in TIMES if getattr(options, name) is not None}
    table = StageTable(ranks=options.pp, chunks=options.vpp or 1, times=ChunkTimes(**times))
    return table, ", ".join(f"{name.replace('_', ' ')} {time:g}" for name, time in times.items())


def of_config(options: argparse.Namespace) -> Comparison:
    from predict import estimate_as_scheduled
    from predict.prices.open import open_prices
    from predict.reports.memory import misfit
    from predict.run.plan import BEST
    from predict.schedules.compare import best_or_nearest
    from predict.step.prediction import provenance_of
    from predict.step.scheduling import compare_schedules
    from sampling.number_text import duration

    # whatever schedule the config has, those of --schedule are timed
    run = loaded(options, [f"plan.schedule={BEST}"] if options.schedule else [])
    if options.memory_limit:
        run = replace(run, plan=replace(run.plan, memory_limit=options.memory_limit))
    if options.blocking:
        run = replace(run, execution=replace(run.execution, overlap_p2p=False))
    prices = open_prices(run.cluster, run.execution)
    of_plan = names_of("all") if run.plan.schedule == BEST else [run.plan.schedule]
    outcomes, predictions = compare_schedules(
        run, names_of(options.schedule) if options.schedule else of_plan, partial(estimate_as_scheduled, prices=prices)
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
