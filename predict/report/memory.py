"""The memory of a run as text and JSON: the estimate, what a benchmark restores beside it, Primus' formulas, and what does not fit.

Sizes in the JSON are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.anchor.restore_memory import RestoredMemory
from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.primus.components import PrimusComponent, PrimusLayer
from predict.memory.primus.projection import PrimusMemory, primus_memory
from predict.memory.rank_memory import TERMS, PeakMoment, RankMemory
from predict.memory.smallest_cluster import SmallestCluster
from predict.run.replica import Replica
from sampling.files.faults import counted
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


def memory_report_json(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> dict[str, Any]:
    """JSON of the result; in benchmark mode point, upper bound and verdict are the benchmark's."""
    content = memory_json(memory, advice) | {"mode": mode}
    if restored:
        content["benchmark"] = of_benchmark = restored.to_json(memory.capacity_bytes)
        if mode == "benchmark":
            content |= {key: value for key, value in of_benchmark.items() if key != "terms"}
            content["feasible"] = content["verdict"] != "OOM"
    if formula:
        content["primus"] = primus_json(_primus(memory))
    return content


def memory_report_text(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> RenderableType:
    """Text of the result; in benchmark mode the benchmark's figures come first."""
    from rich.console import Group

    blocks: list[RenderableType] = [memory_text(memory, advice)]
    if restored:
        measured = "\n".join(restored_lines(restored, memory.capacity_bytes))
        if mode == "benchmark":
            blocks.insert(0, f"{measured}\n\nsimulated:")
        else:
            blocks.append(f"\n{measured}")
    if formula:
        blocks.append("\n".join(["", *primus_lines(_primus(memory))]))
    return Group(*blocks)


def _primus(memory: MemoryEstimate) -> PrimusMemory:
    return primus_memory(memory.run, pipeline_rank=memory.worst.rank)


VERSION = 1


def memory_json(memory: MemoryEstimate, advice: Iterable[Advice] = ()) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": memory.run.name,
        "feasible": memory.feasible,
        "schedule": memory.run.plan.schedule,
        "memory_profile": memory.memory_profile.name,
        "ranks": [rank_json(rank) for rank in memory.ranks],
        "worst_rank": memory.worst.rank,
        "layers": [
            {
                "unit": unit.name,
                "recompute": unit.recompute,
                "count": count,
                "elements": unit.weights.total,
                "activations": of.kept_bytes,
                "components": dict(of.components),
                "forward_working": of.forward_working_bytes,
                "backward_working": of.backward_working_bytes,
            }
            for unit, count, of in memory.units
        ],
        "buffers": [asdict(buffer) for buffer in memory.buffers],
        **verdict_json(memory),
        "advice": [asdict(each) | {"cost": each.cost} for each in advice],
    }


def rank_json(rank: RankMemory) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "layers": rank.layers,
        "elements": rank.elements,
        **{term: getattr(rank, term) for term in TERMS},
        "allocated": rank.allocated,
        "reserved": rank.reserved,
        "peak": rank.peak,
        "when": asdict(rank.when),
    }


def verdict_json(memory: MemoryEstimate) -> dict[str, Any]:
    return {
        "point_bytes": memory.point_bytes,
        "upper_bytes": memory.upper_bytes,
        "capacity_bytes": memory.capacity_bytes,
        "headroom_bytes": memory.headroom_bytes,
        "verdict": memory.verdict,
    }


def primus_json(memory: PrimusMemory) -> dict[str, Any]:
    return {
        "formula": "primus",
        "run": memory.run,
        "pipeline_rank": memory.pipeline_rank,
        "parameters": {"total": memory.total_parameters, "rank": memory.parameters},
        "bytes_per_parameter": memory.bytes_per_parameter,
        "weight_bytes": memory.weight_bytes,
        "gradient_bytes": memory.gradient_bytes,
        "optimizer_bytes": memory.optimizer_bytes,
        "base_activation_bytes": memory.base_activation_bytes,
        "working_bytes": memory.working_bytes,
        "activation_bytes": memory.activation_bytes,
        "total_bytes": memory.total_bytes,
        "recomputed_layers": memory.recomputed_layers,
        "factors": {**asdict(memory.factors), "product": memory.factors.product},
        "components": [asdict(component) for component in memory.outside_layers],
        "layers": [
            {
                "name": layer.name,
                "count": count,
                "parameters": layer.parameters,
                "activation_bytes": layer.activation_bytes,
                "components": [asdict(component) for component in layer.components],
            }
            for layer, count in memory.layers
        ],
        "differences": dict(memory.differences),
    }


def misfit(memory: MemoryEstimate, *, point_bytes: float | None = None) -> str:
    """Why a plan does not fit, in a sentence; '' if it does. `point_bytes` replaces the expected peak of the estimate."""
    peak = memory.point_bytes if point_bytes is None else point_bytes
    too_much = peak - memory.capacity_bytes
    if too_much <= 0:
        return ""
    return (
        f"{memory.run.name} needs {size(peak)} per GPU on its fullest pipeline rank, and {memory.run.cluster.gpu.name} has "
        f"{size(memory.capacity_bytes)} ({size(too_much)} too much)"
    )


def headlines(misfits: Sequence[str]) -> list[str]:
    """The first lines of a report on plans of which some do not fit; '' stands for one that does."""
    from rich.markup import escape

    return [f"[bold red]DOES NOT FIT: {escape(why)}[/]" for why in dict.fromkeys(misfits) if why]


def smallest_in_words(smallest: SmallestCluster | None, replica: Replica) -> str:
    """The smallest cluster on which a plan fits, with what makes it so large."""
    if smallest is None:
        return f"no number of nodes makes this plan fit (one replica is {counted(replica.gpus, 'GPU')})"
    at_risk = ", AT RISK there" if smallest.verdict == "AT RISK" else ""
    where = f"{counted(smallest.gpus, 'GPU')} on {counted(smallest.nodes, 'node')}"
    if smallest.dp > replica.dp:
        return f"{where} for this tp, pp and cp: dp {smallest.dp}, fewer replicas do not fit{at_risk}"
    folded = f", experts folded into it ({replica.unfolded_gpus} GPUs if they are not)" if replica.folded else ""
    return f"{where}: one replica (tp · pp · cp){folded}{at_risk}"
