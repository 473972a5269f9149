"""The memory estimate as text in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from predict.anchor.restore_memory import RestoredMemory
from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.primus.components import PrimusComponent, PrimusLayer
from predict.memory.primus.projection import PrimusMemory
from predict.memory.rank_memory import TERMS, PeakMoment
from sampling.number_text import duration, durations, gib, signed_percent, size
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLOURS = {"FITS": "green", "AT RISK": "yellow", "OOM": "red"}
MOST_ADVICE = 4
NO_CHANGE = "no single change of recomputation, microbatch, tp, ZeRO, pp or schedule"


def memory_text(memory: MemoryEstimate, advice: Sequence[Advice] = ()) -> RenderableType:
    """The verdict, each pipeline rank, each kind of layer, the buffers, and the changes that would make the run fit."""
    from rich.console import Group

    return Group(*_head(memory), "", _ranks(memory), "", _units(memory), "", _buffers(memory), *_advice(memory, advice))


def summary(memory: MemoryEstimate) -> str:
    """The estimate in one line, for other reports."""
    left = memory.headroom_bytes
    of_capacity = f"{size(abs(left))} {'free' if left >= 0 else 'too much'}"
    return (
        f"{size(memory.point_bytes)} per GPU expected on pipeline rank {memory.worst.rank}, of {size(memory.capacity_bytes)}: "
        f"{memory.verdict} ({of_capacity})"
    )


def _head(memory: MemoryEstimate) -> list[str]:
    from rich.markup import escape

    worst, colour = memory.worst, COLOURS[memory.verdict]
    left = memory.headroom_bytes
    return [
        f"[bold]{escape(memory.run.name)}[/]  {escape(memory.run.model.name)} on {escape(memory.run.cluster.gpu.name)}, "
        f"{escape(memory.run.plan.schedule)}, "
        f"memory profile {memory.memory_profile.name}",
        "",
        f"  verdict   [bold {colour}]{memory.verdict}[/]   {size(memory.point_bytes)} expected, {size(memory.upper_bytes)} at most, "
        f"of {size(memory.capacity_bytes)}",
        f"  headroom  {size(left)}{'' if left >= 0 else ' (does not fit)'}",
        f"  peak      on pipeline rank {worst.rank}, {_when(worst.when)}; allocated {size(worst.allocated)}, reserved "
        f"{size(worst.reserved)}",
    ]


def restored_lines(restored: RestoredMemory, capacity_bytes: float) -> list[str]:
    """The peak restored from a benchmark."""
    verdict = restored.verdict(capacity_bytes)
    terms = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {size(of)}" for name, of in restored.sizes())
    return [
        f"from the benchmark: [bold {COLOURS[verdict]}]{verdict}[/]   {size(restored.point_bytes)} expected, "
        f"{size(restored.upper_bytes)} at most, of {size(capacity_bytes)}",
        f"  {terms}",
        f"  measured / predicted activations: {restored.terms['activation_correction']:.3f}",
    ]


def _when(when: PeakMoment) -> str:
    if when.start_us is None or when.end_us is None:
        return f"in {when.action}"
    return f"in {when.action}, from {durations(when.start_us, when.end_us)}"


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=f"  {title}", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 1))


def _ranks(memory: MemoryEstimate) -> RenderableType:
    table = _table("pipeline ranks at their peaks, GiB per GPU")
    for name in ("rank", "layers", *TERMS, "peak"):
        table.add_column(name, justify="right")
    table.add_column("when")
    for rank in memory.ranks:
        terms = (gib(getattr(rank, term)) for term in TERMS)
        table.add_row(str(rank.rank), str(rank.layers), *terms, f"[bold]{gib(rank.peak)}[/]", rank.when.action)
    return table


def _units(memory: MemoryEstimate) -> RenderableType:
    table = _table("kinds of layers, per GPU; activations of one microbatch")
    for name in ("", "count", "parameters", "activations", "forward +", "backward +"):
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
        return ["", f"It fits with {NO_CHANGE}."]
    lines = ["", "[bold]Single changes that make it fit, cheapest first:[/]"]
    return [*lines, *(f"  {advice_line(each)}" for each in advice[:MOST_ADVICE])]


def advice_line(advice: Advice) -> str:
    """One change as options of a command, with what it brings and costs."""
    changes = " ".join(f"--set {setting}" for setting in advice.settings)
    return f"{changes}   {advice.verdict} at {size(advice.point_bytes)}, step {duration(advice.step_us)} ({signed_percent(advice.cost)})"


def primus_lines(memory: PrimusMemory) -> list[str]:
    """The summary of Primus Projection, and how our estimate differs."""
    factors = memory.factors
    return [
        f"{memory.run}: memory of pipeline rank {memory.pipeline_rank} by the formulas of Primus Projection",
        f"  parameters            {memory.total_parameters:,} in total, {memory.parameters:,} on the rank",
        *_primus_components(memory),
        f"  weights + gradients + optimizer   {gib(memory.state_bytes)} GiB  ({memory.bytes_per_parameter:g} bytes per parameter)",
        f"  activations                       {gib(memory.activation_bytes)} GiB  "
        f"({gib(memory.base_activation_bytes)} GiB × pp {factors.pp} × penalty {factors.interleaved_penalty:g} × "
        f"ga {factors.ga_saving:g})",
        f"  total                             {gib(memory.total_bytes)} GiB",
        "how ours differs:",
        *(f"  {term}: {difference}" for term, difference in memory.differences.items()),
    ]


def _primus_components(memory: PrimusMemory) -> Iterator[str]:
    for component in memory.outside_layers:
        yield f"  {component.name:<32}{_primus_sizes(component)}"
    for layer, count in memory.layers:
        yield f"  {f'{layer.name} × {count}':<32}{_primus_sizes(layer)}"
        for component in layer.components:
            name = f"{component.name} × {component.count}" if component.count > 1 else component.name
            yield f"    {name:<30}{_primus_sizes(component)}"


def _primus_sizes(of: PrimusComponent | PrimusLayer) -> str:
    return f"{of.parameters:>18,} parameters {of.activation_bytes / GIB:>10.4f} GiB"
