"""The memory estimate for a reader in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from predict.anchor.restored_memory import Restored
from predict.memory.advice import Advice
from predict.memory.estimate import GIB, MemoryEstimate
from predict.memory.rank_memory import PeakMoment
from predict.report.memory_json import TERMS
from predict.report.units import duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLOURS = {"FITS": "green", "AT RISK": "yellow", "OOM": "red"}
MOST_ADVICE = 4


def memory_text(memory: MemoryEstimate, advice: Sequence[Advice] = ()) -> RenderableType:
    """The verdict first, then each pipeline rank, each kind of layer, what lies beside them, and what would make it fit."""
    from rich.console import Group

    return Group(*_head(memory), "", _ranks(memory), "", _units(memory), "", _buffers(memory), *_advice(memory, advice))


def size(size_bytes: float) -> str:
    """GiB with two digits behind the point, or MiB where that says nothing."""
    return f"{size_bytes / GIB:,.2f} GiB" if abs(size_bytes) >= GIB / 10 else f"{size_bytes / 2**20:,.1f} MiB"


def summary(memory: MemoryEstimate) -> str:
    """One line for other reports."""
    left = memory.headroom_bytes
    of_capacity = f"{size(abs(left))} {'free' if left >= 0 else 'too much'}"
    return (
        f"{size(memory.point_bytes)} expected on a GPU of pipeline rank {memory.worst.rank}, of {size(memory.capacity_bytes)}: "
        f"{memory.verdict} ({of_capacity})"
    )


def _head(memory: MemoryEstimate) -> list[str]:
    worst, colour = memory.worst, COLOURS[memory.verdict]
    left = memory.headroom_bytes
    return [
        f"[bold]{memory.run.name}[/]  {memory.run.model.name} on {memory.run.cluster.gpu.name}, {memory.run.plan.schedule}, "
        f"kept as {memory.profile.name} keeps it",
        "",
        f"  verdict   [bold {colour}]{memory.verdict}[/]   {size(memory.point_bytes)} expected, {size(memory.upper_bytes)} at most, "
        f"of {size(memory.capacity_bytes)}",
        f"  headroom  {size(left)}{'' if left >= 0 else ' (it does not fit)'}",
        f"  peak      on pipeline rank {worst.rank}, {_when(worst.when)}; allocated {size(worst.allocated)}, reserved "
        f"{size(worst.reserved)}",
    ]


def restored_lines(restored: Restored, capacity_bytes: float) -> list[str]:
    """What a benchmark makes of it, under the estimate."""
    verdict = restored.verdict(capacity_bytes)
    terms = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {size(of)}" for name, of in restored.sizes())
    return [
        f"from the benchmark: [bold {COLOURS[verdict]}]{verdict}[/]   {size(restored.point_bytes)} expected, "
        f"{size(restored.upper_bytes)} at most, of {size(capacity_bytes)}",
        f"  {terms}",
        f"  measured over counted activations: {restored.terms['activation_correction']:.3f}",
    ]


def _when(when: PeakMoment) -> str:
    if when.start_us is None or when.end_us is None:
        return f"in {when.action}"
    return f"in {when.action}, from {duration(when.start_us)} to {duration(when.end_us)}"


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=f"  {title}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 1))


def _ranks(memory: MemoryEstimate) -> RenderableType:
    table = _table("pipeline ranks at their peaks, GiB on a GPU")
    for name in ("rank", "layers", *TERMS, "peak"):
        table.add_column(name, justify="right")
    table.add_column("when")
    for rank in memory.ranks:
        terms = (f"{getattr(rank, term) / GIB:,.2f}" for term in TERMS)
        table.add_row(str(rank.rank), str(rank.layers), *terms, f"[bold]{rank.peak / GIB:,.2f}[/]", rank.when.action)
    return table


def _units(memory: MemoryEstimate) -> RenderableType:
    table = _table("kinds of layers, on one GPU; activations of one microbatch")
    for name in ("", "how many", "parameters", "activations", "forward +", "backward +"):
        table.add_column(name, justify="right" if name else "left")
    for unit, count, of in memory.units:
        repeats = "" if unit.recompute == "none" or unit.kind is None else f", {unit.recompute} recompute"
        table.add_row(
            f"{unit.name}{repeats}",
            str(count),
            f"{unit.weights.total:,}",
            size(of.kept_bytes),
            size(of.forward_working_bytes),
            size(of.backward_working_bytes),
        )
    return table


def _buffers(memory: MemoryEstimate) -> RenderableType:
    table = _table(f"buffers of pipeline rank {memory.worst.rank}")
    for name in ("", "size", "±", "source"):
        table.add_column(name, justify="right" if name in ("size", "±") else "left")
    for buffer in memory.buffers:
        table.add_row(buffer.name, size(buffer.size_bytes), size(buffer.width_bytes), buffer.source)
    return table


def _advice(memory: MemoryEstimate, advice: Sequence[Advice]) -> list[str]:
    if memory.verdict == "FITS":
        return []
    if not advice:
        return ["", "No single change of recomputation, microbatch, tp, ZeRO, pp or schedule makes it fit."]
    lines = ["", "[bold]One change that makes it fit, the cheapest first:[/]"]
    for each in advice[:MOST_ADVICE]:
        changes = " ".join(f"--set {setting}" for setting in each.settings)
        lines.append(
            f"  {changes}   {each.verdict} at {size(each.point_bytes)}, step {duration(each.step_us)} ({each.cost:+.1%})"
        )
    return lines
