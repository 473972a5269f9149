"""The parts that every report in a terminal is made of: where it is printed, its tables, and a call or a run in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.call import Call
from sampling.command_line import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def figures_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """A table without rows, with left-aligned columns `names` before right-aligned columns `figures`."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=True)
    for name in names:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right")
    return table


PIPE_WIDTH = 140


def show(report: RenderableType) -> None:
    console(piped_width=PIPE_WIDTH).print(report)


def width() -> int:
    """Columns that `show` has."""
    return console(piped_width=PIPE_WIDTH).width


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
