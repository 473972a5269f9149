"""A predicted step as text and JSON, alone and beside another prediction of the same run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.interval import Interval
from predict.memory.advice import Advice
from predict.report.memory import NO_CHANGE, advice_line, headlines, misfit, smallest_in_words, summary, verdict_json
from predict.report.provenance import first_lines_of, last_lines
from predict.report.text import run_text
from predict.run.frameworks import refused_by_runtime
from predict.run.model_flops import PALM_NO_LOOKUP
from predict.step.breakdown import NOT_COMPUTE
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


VERSION = 2


def interval_json(interval: Interval) -> dict[str, float]:
    return {"median": interval.median_us, "low": interval.low_us, "high": interval.high_us}


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """The prediction in plain values: times in µs, sizes in bytes, shares as fractions."""
    run, smallest = prediction.run, prediction.smallest_cluster
    return {
        "version": VERSION,
        "run": run.name,
        "feasible": prediction.feasible,
        "refused_by_runtime": refused_by_runtime(run.execution.framework, run.plan, run.microbatches),
        "schedule": run.plan.schedule,
        "step_time_us": interval_json(prediction.step_time),
        "unknowns_log": dict(prediction.unknowns),
        "tokens_per_second": prediction.tokens_per_second,
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "bubble_fraction": prediction.bubble_fraction,
        "breakdown_us": prediction.breakdown_us,
        "sources": prediction.sources,
        "stages": [asdict(stage) for stage in prediction.stages],
        "one_replica": asdict(prediction.one_replica),
        "smallest_cluster": smallest and asdict(smallest),
        "memory": verdict_json(prediction.memory),
        "execution": asdict(run.execution),
        "provenance": dict(prediction.provenance),
    }


def predictions_json(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """One prediction by itself; several under their modes."""
    contents = {mode: prediction_json(prediction) for mode, prediction in predictions.items()}
    return {"version": VERSION, **contents} if len(contents) > 1 else next(iter(contents.values()))


LEAST_SHARE = 5e-4
"""Share of the step below which a row of the ledger would show 0.0 % in both columns."""


def side_by_side(benchmark: Prediction, simulate: Prediction) -> RenderableType:
    """Step time and ledger of the prediction from timed layers and of the simulated one; and the first over the second."""
    from rich.table import Table

    pair = (benchmark, simulate)
    table = Table(title=f"{benchmark.run.name}: from timed layers, and simulated", title_justify="left", box=None)
    for name in ("", "benchmark", "simulate", "ratio"):
        table.add_column(name, justify="left" if not name else "right")

    def row(name: str, of: Callable[[Prediction], float], show: Callable[[float], str] = duration) -> None:
        timed, simulated = (of(one) for one in pair)
        ratio = f"{timed / simulated:.2f}" if simulated > 0 else ""
        table.add_row(name, show(timed), show(simulated), ratio)

    row("step time", lambda one: one.step_time.median_us)
    row("  low (90 %)", lambda one: one.step_time.low_us)
    row("  high", lambda one: one.step_time.high_us)
    row("tokens/s", lambda one: one.tokens_per_second, lambda value: f"{value:,.0f}")
    row("MFU", lambda one: one.mfu, lambda value: f"{value:.1%}")
    row("bubble", lambda one: one.bubble_fraction, lambda value: f"{value:.1%}")
    for source in simulate.sources:
        row(f"{source} share", lambda one, source=source: one.sources[source], lambda value: f"{value:.0%}")  # type: ignore[misc]
    table.add_section()
    for name in _headings(benchmark, simulate):
        row(name, lambda one, name=name: one.breakdown_us.get(name, 0.0))  # type: ignore[misc]
    return table


def _headings(*pair: Prediction) -> list[str]:
    """The headings that are not negligible in either ledger, the largest first."""
    weights: dict[str, float] = {}
    for one in pair:
        for name, time_us in one.breakdown_us.items():
            weights[name] = max(weights.get(name, 0.0), abs(time_us) / one.step_time.median_us)
    return sorted((name for name, weight in weights.items() if weight >= LEAST_SHARE), key=lambda name: -weights[name])
