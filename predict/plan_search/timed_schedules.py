"""Pipeline schedules timed beside each other, with the stage times of a run config, of a file or of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from predict import estimate_as_scheduled, load
from predict.config.document import Config
from predict.memory.estimate import MemoryEstimate
from predict.prices.open import open_prices
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.schedules import names
from predict.schedules.compare import ScheduleOutcome, best_or_nearest, compare, timed_alike
from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.order_files import is_order_file
from predict.schedules.stage_times import StageTable, read_stage_times
from predict.step.prediction import provenance_of
from predict.step.scheduling import compare_schedules
from sampling.errors import Checks, UserError
from sampling.files.faults import counted, did_you_mean, shown
from sampling.number_text import duration, plain

ALL = "all"
NOT_GIVEN = {"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0}
"""Stage times that are taken where none are given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedSchedules:
    """Schedules that were timed, the best first, and what they were timed for."""

    outcomes: list[ScheduleOutcome]
    ranks: int
    chunks: int
    microbatches: int
    source: str
    """Provenance of the times, in words."""
    memory_limit: int | None
    run: TrainingRun | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Provenance of the times of `run`."""
    too_large: MemoryEstimate | None = None
    """The memory of the nearest schedule, where none fits the device of `run`, which is the only reason why none is a choice."""

    @property
    def heading(self) -> str:
        of = [self.run.name] if self.run else []
        parts = [counted(self.ranks, "pipeline rank"), counted(self.microbatches, "microbatch"), *of, self.source]
        parts[1:1] = [f"{self.chunks} chunks each"] if self.chunks > 1 else []
        limit = [f"at most {self.memory_limit} chunk activations"] if self.memory_limit else []
        return ", ".join(parts + limit)

    def show(self, time: float) -> str:
        """A time as it is written: of a run in µs, else in the unit of the times that were given."""
        return duration(time) if self.run else plain(time)


def schedule(
    config: Config | None = None,
    overrides: Sequence[str] = (),
    *,
    schedules: str | None = None,
    stage_times: Path | str | None = None,
    pp: int = 1,
    vpp: int = 1,
    microbatches: int = 1,
    times: Mapping[str, float] | None = None,
    memory_limit: int | None = None,
    blocking: bool = False,
) -> TimedSchedules:
    """Time pipeline schedules exactly, beside each other, the best first.

    `schedules` are names, order files, or `all` (default: that of the config, else all). Stage times are those of the config's run; without
    a config, of the file `stage_times`, or `times` of one chunk (`forward`, `backward_input`, `backward_weight`, `p2p`, `overlap_gain`, in
    any one unit) on `pp` ranks of `vpp` chunks, and `microbatches` are timed. `memory_limit` is the most chunk activations that a rank may
    hold; under `blocking` a rank waits until what it sends has arrived. UserError for an unknown schedule; ConfigError lists every fault of
    the config.
    """
    if config is not None:
        # whatever schedule the config has, those asked for are timed
        replaced = schedules and not isinstance(config, TrainingRun)
        run = load(config, [*overrides, *([f"plan.schedule={BEST}"] if replaced else [])])
        return _of_run(run, schedules, memory_limit, blocking)
    if stage_times is not None:
        try:
            table, source = read_stage_times(Path(stage_times)), str(stage_times)
        except UserError as error:
            raise type(error)("\n".join(f"--stage-times: {line}" for line in str(error).splitlines())) from None
    else:
        table, source = _of_numbers(pp, vpp, NOT_GIVEN | dict(times or {}))
    counts = {"ranks": table.ranks, "chunks": table.chunks, "microbatches": microbatches}
    outcomes = compare(
        names_of(schedules or ALL),
        **counts,
        timed=timed_alike(**counts, times=replace(table.times, blocking=blocking), memory_limit=memory_limit),
        refusal=table.refusal,
        memory_limit=memory_limit,
        chunk_bytes=table.activation_bytes,
    )
    return TimedSchedules(
        outcomes=outcomes,
        ranks=table.ranks,
        chunks=table.chunks,
        microbatches=microbatches,
        source=source,
        memory_limit=memory_limit,
    )


def names_of(schedules: str) -> list[str]:
    """The schedules that a text names; UserError with a line for each part that is none."""
    parts = [part.strip() for part in schedules.split(",") if part.strip()]
    if not parts:
        raise UserError(f"--schedule: {schedules!r}: no schedule is named; give {ALL}, or some of {', '.join(names())}")
    with Checks() as checks:
        for part in parts:
            if part not in (ALL, *names()) and not is_order_file(part):
                near = (
                    did_you_mean(part, names()) or f"; give {ALL}, some of {', '.join(names())}, or files .csv or .json"
                )
                with checks.one():
                    raise UserError(f"--schedule: {shown(part)} is not a schedule{near}")
    return [name for part in parts for name in (names() if part == ALL else [part])]


def _of_numbers(pp: int, vpp: int, times: Mapping[str, Any]) -> tuple[StageTable, str]:
    """The table of equal stages, and its times in words. UserError for a time of another name."""
    known = [each.name for each in fields(ChunkTimes) if each.name != "blocking"]
    if unknown := [name for name in times if name not in known]:
        near = did_you_mean(unknown[0], known) or f"; give {', '.join(known)}"
        raise UserError(f"times: {shown(unknown[0])} is not a time of a chunk{near}")
    table = StageTable(ranks=pp, chunks=vpp, times=ChunkTimes(**times))
    return table, ", ".join(f"{name.replace('_', ' ')} {plain(time)}" for name, time in times.items())


def _of_run(run: TrainingRun, schedules: str | None, memory_limit: int | None, blocking: bool) -> TimedSchedules:
    if memory_limit:
        run = replace(run, plan=replace(run.plan, memory_limit=memory_limit))
    if blocking:
        run = replace(run, execution=replace(run.execution, overlap_p2p=False))
    prices = open_prices(run.cluster, run.execution)
    of_plan = names_of(ALL) if run.plan.schedule == BEST else [run.plan.schedule]
    outcomes, predictions = compare_schedules(
        run, names_of(schedules) if schedules else of_plan, partial(estimate_as_scheduled, prices=prices)
    )
    nearest = best_or_nearest(outcomes)
    provenance = predictions[nearest.name].provenance if nearest else provenance_of(run, prices)
    samples = provenance["samples"]
    return TimedSchedules(
        outcomes=outcomes,
        ranks=run.plan.pp,
        chunks=run.plan.vpp,
        microbatches=run.microbatches,
        source=f"times of {samples['profile']}" if samples else "analytic times",
        memory_limit=run.plan.memory_limit or None,
        run=run,
        provenance=provenance,
        too_large=predictions[nearest.name].memory if nearest and nearest.exceeds_device else None,
    )
