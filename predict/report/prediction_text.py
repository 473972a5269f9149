"""The estimate for a reader in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from predict.memory.advice import Advice
from predict.report.feasibility import headlines, misfit, smallest_in_words
from predict.report.memory.text import NO_CHANGE, advice_line, summary
from predict.report.provenance_text import first_lines_of, last_lines
from predict.report.run_text import run_text
from predict.run.model_flops import PALM_NO_LOOKUP
from predict.step.interval import Interval
from predict.step.itemised.breakdown import NOT_COMPUTE
from predict.step.prediction import Prediction
from sampling.number_text import bar, duration, durations, percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MOST_UNKNOWNS = 3
"""Unknowns that are told; `--json` has all of them."""
ROUNDING = 1e-9
"""Share of the step below which a sum of floats is nothing."""


def prediction_text(
    prediction: Prediction, advice: Sequence[Advice] = (), *, full_sources: bool = False, notes: bool = True
) -> RenderableType:
    """Step time first, then what it rests on, where it goes, each stage, and the sources; before all that, that the plan does
    not fit. `advice` are changes that would make it fit; without `notes` what the step rests on is told elsewhere."""
    from rich.console import Group
    from rich.markup import escape

    sources = last_lines(prediction.provenance, analytic=prediction.is_analytic, full=full_sources)
    first = first_lines_of(prediction) if notes else []
    return Group(
        *_head(prediction, advice, first), _ledger(prediction), "", _stages(prediction), "", *map(escape, sources)
    )


def _head(prediction: Prediction, advice: Sequence[Advice], first: Sequence[str]) -> list[str]:
    from rich.markup import escape

    run = prediction.run
    lines = headlines([misfit(prediction.memory)])
    lines += first
    lines += [
        f"[bold]{escape(run.name)}[/]  {escape(run_text(run))}",
        "",
        step_line(prediction.step_time),
        f"  interval    {in_words(prediction.unknowns)}",
        f"  throughput  {prediction.tokens_per_second:,.0f} tokens/s   {prediction.tokens_per_second_per_gpu:,.0f} per GPU",
        f"  MFU         {prediction.mfu:.1%} ({PALM_NO_LOOKUP})   bubble {percent(prediction.bubble_fraction)} of the schedule",
        f"  rests on    {_sources(prediction)}",
        f"  memory      {summary(prediction.memory)}",
        *([] if prediction.feasible else [f"  fits with   {advice_line(advice[0]) if advice else NO_CHANGE}"]),
        f"  smallest    {smallest_in_words(prediction.smallest_cluster, prediction.one_replica)}",
        "",
    ]
    return lines


def step_line(step: Interval) -> str:
    """The step time with its 90 % interval."""
    below, above = step.median_us - step.low_us, step.high_us - step.median_us
    return (
        f"  step time   [bold]{duration(step.median_us)}[/]   −{below / step.median_us:.0%} +{above / step.median_us:.0%}"
        f"   (90 %: {durations(step.low_us, step.high_us)})"
    )


def in_words(unknowns: Mapping[str, float]) -> str:
    """The unknowns that widen the interval most, each with the interval that it would leave by itself."""
    wide = [(name, math.expm1(width)) for name, width in unknowns.items()][:MOST_UNKNOWNS]
    return "by " + " · ".join(f"{name} ±{share:.0%}" for name, share in wide if share >= 0.005)


def _sources(prediction: Prediction) -> str:
    return " · ".join(
        [
            *(f"{share:.0%} {name}" for name, share in prediction.sources.items() if share >= 0.0005),
            *(["calibrated"] if prediction.run.calibration else []),
        ]
    )


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=f"  {title}", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 2))


def _ledger(prediction: Prediction) -> RenderableType:
    table = _table("where the step goes, mean over pipeline ranks")
    table.add_column("")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    step_us = prediction.step_time.median_us
    compute = {name: time for name, time in prediction.breakdown_us.items() if name not in NOT_COMPUTE}
    rest = {
        name: time_us
        for name, time_us in prediction.breakdown_us.items()
        if name in NOT_COMPUTE and abs(time_us) > ROUNDING * step_us
    }
    for name, time_us in [*_descending(compute), *_descending(rest)]:
        share = time_us / step_us
        table.add_row(name, duration(time_us), percent(share), bar(share))
    return table


def _descending(ledger: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(ledger.items(), key=lambda item: -item[1])


def _stages(prediction: Prediction) -> RenderableType:
    table = _table("pipeline ranks, per microbatch; gradients, optimizer per step")
    for name in ("rank", "layers", "forward", "backward", "gradients", "optimizer"):
        table.add_column(name, justify="right")
    for index, stage in enumerate(prediction.stages):
        times = (stage.forward_us, stage.backward_us, stage.gradients_us, stage.step_us)
        table.add_row(str(index), str(stage.layers), *(duration(time_us) for time_us in times))
    return table
