"""The parts of every answer in a terminal: head, facts, tables, intervals, and where it is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from predict.interval import Interval
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.call import Call
from sampling.command_line import console
from sampling.number_text import Show, bar, duration, durations, percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], str]]
"""Heading of a column → the text of a row's cell."""
PIPE_WIDTH = 140
LABEL = 12
"""Characters of a fact's label with the blanks behind it."""


def show(report: RenderableType) -> None:
    """Print an answer on stdout: coloured in a terminal, plain in a pipe or with NO_COLOR."""
    console(piped_width=PIPE_WIDTH).print(report)


def width() -> int:
    """Columns that `show` has."""
    return console(piped_width=PIPE_WIDTH).width


def stacked(*parts: RenderableType) -> RenderableType:
    """Lines and tables below each other."""
    from rich.console import Group

    return Group(*parts)


def escape(text: str) -> str:
    """A text, such as a name from a file, that rich shows as it is."""
    from rich.markup import escape as of_rich

    return of_rich(text)


def head(name: str, about: str) -> str:
    """The first line of an answer: what it is of."""
    return f"[bold]{escape(name)}[/]  {escape(about)}"


def fact(label: str, text: str) -> str:
    """A line below the head: a label, and what there is to say under it, which may have marks of rich."""
    return f"  {label:<{LABEL}}{text}"


def step_fact(step: Interval, more: str = "") -> str:
    """The step time with its 90 % interval."""
    below, above = (abs(bound - step.median_us) / step.median_us for bound in (step.low_us, step.high_us))
    return fact(
        "step time", f"[bold]{duration(step.median_us)}[/]   −{below:.0%} +{above:.0%}   ({interval_text(step)}){more}"
    )


def interval_text(time: Interval) -> str:
    """`90 %: 634 to 826 ms`."""
    return f"90 %: {durations(time.low_us, time.high_us)}"


def figures_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """A table without rows, with left-aligned columns `names` before right-aligned columns `figures`; its title is one line."""
    from rich.table import Table
    from rich.text import Text

    heading = Text.from_markup(title, style="bold", overflow="ignore")
    heading.no_wrap = True
    made = Table(title=heading if title else None, title_justify="left", box=None)
    for name in names:
        made.add_column(name)
    for name in figures:
        made.add_column(name, justify="right")
    return made


def table(
    title: str, rows: Iterable[Row], names: Columns[Row], figures: Columns[Row], notes: Columns[Row] | None = None
) -> Table:
    """A table of declared columns: names at the left, figures at the right edge of theirs, and notes behind them.

    Names and notes are shown as they are; figures may have marks of rich.
    """
    notes = notes or {}
    made = figures_table(title, tuple(names), tuple(figures))
    for heading in notes:
        made.add_column(heading)
    for row in rows:
        words = [[escape(cell(row)) for cell in columns.values()] for columns in (names, notes)]
        made.add_row(*words[0], *(cell(row) for cell in figures.values()), *words[1])
    return made


def account_table(
    title: str, parts: Iterable[tuple[str, float]], whole: float, *, unit: str = "time", write: Show = duration
) -> Table:
    """The parts of a whole with their shares, and a bar for each that is no part of the one before it, as an indented one is."""
    return table(
        title,
        parts,
        {"": lambda part: part[0]},
        {unit: lambda part: write(part[1]), "share": lambda part: percent(part[1] / whole)},
        {"": lambda part: "" if part[0].startswith(" ") else bar(part[1] / whole)},
    )


MUTE = (0, False, "", None)
"""Values of a field that say nothing."""


def call_text(call: Call) -> str:
    """`gemm fp8 m=2048 n=576 k=7168`."""
    given = {name: value for name, value in call.fields().items() if name != "dtype" and value not in MUTE}
    told = [name if value is True else f"{name}={value}" for name, value in given.items()]
    return " ".join([call.NAME, *filter(None, [call.fields().get("dtype")]), *told])


def run_text(run: TrainingRun) -> str:
    """`llama3-8b, tp 2 · pp 4 · dp 8, 1f1b, 16 × 1 sequences of 8192, bf16, as megatron-core runs it`."""
    what = "sequences" if run.real is None else f"rows ({run.batch.padding} of {run.batch.lengths})"
    batch = f"{run.microbatches} × {run.batch.micro} {what} of {run.batch.seq_len}"
    return (
        f"{run.model.name}, {_plan(run.plan)}, {run.plan.schedule}, {batch}, {run.precision}, "
        f"as {run.execution.framework} runs it"
    )


def _plan(plan: Plan) -> str:
    """The degrees that are above 1; tp, pp and dp always."""
    chunks = f" × {plan.vpp}" if plan.vpp > 1 else ""
    parts = [f"tp {plan.tp}{' + sp' if plan.sp else ''}", f"pp {plan.pp}{chunks}", f"dp {plan.dp}"]
    parts += [f"{name} {getattr(plan, name)}" for name in ("cp", "ep", "etp") if getattr(plan, name) > 1]
    if plan.zero:
        parts.append(f"ZeRO-{plan.zero}{f' over {plan.shard}' if plan.shard else ''}")
    if plan.recompute != "none":
        parts.append(f"{plan.recompute} recompute")
    return " · ".join(parts)
