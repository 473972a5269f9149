"""The memory of a run as text and JSON, and what does not fit.

Sizes in the JSON are bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from predict.memory.advice import Advice, SmallestCluster
from predict.memory.estimate import MemoryEstimate
from predict.memory.peak import TERMS, PeakMoment, RankMemory
from predict.memory.state import Unit
from predict.reports.printed import Renderable, Table
from predict.reports.text import chance, escape, fact, first_that_fits, head, own_values, stacked, table
from predict.run.training_run import Replica
from predict.serialise import as_json, each_picked, picked, versioned
from sampling.files.faults import counted
from sampling.number_text import duration, durations, gib, signed_percent, size

COLOURS = {"FITS": "green", "AT RISK": "yellow", "OOM": "red"}
MOST_ADVICE = 4
NO_CHANGE = "no change, and no pair of changes, of recomputation, microbatch, tp, ZeRO, pp, cp or schedule"
SEARCH = "`predict search CONFIG --set plan=auto --set batch.micro=auto` tries all of them together."
VERDICT = "point_bytes upper_bytes capacity_bytes headroom_bytes verdict fits_probability"
"""What the JSON of other answers has of an estimate."""


def memory_text(memory: MemoryEstimate, advice: Sequence[Advice] = ()) -> Renderable:
    """The verdict, each pipeline rank, each kind of layer, the buffers, and the changes that would make the run fit."""
    run, worst, left = memory.run, memory.worst, memory.headroom_bytes
    return stacked(
        head(
            run.name,
            ", ".join(
                [
                    f"{run.model.name} on {run.cluster.gpu.name}",
                    run.plan.schedule,
                    *(f"{key} {value}" for key, value in own_values(run.plan).items()),
                    f"memory profile {memory.memory_profile.name}",
                ]
            ),
        ),
        "",
        fact(
            "verdict",
            verdict_text(
                memory.verdict,
                memory.fits_probability,
                memory.point_bytes,
                memory.upper_bytes,
                memory.capacity_bytes,
            ),
        ),
        *([fact("host", host_text(memory))] if memory.host_bytes or memory.disk_bytes else []),
        *([fact("turned by", turning_text(advice[0]))] if advice else []),
        fact("headroom", f"{size(left)}{'' if left >= 0 else ': the expected peak is above the memory'}"),
        fact(
            "peak",
            f"on pipeline rank {worst.rank}, {_when(worst.when)}; allocated {size(worst.allocated)}, reserved {size(worst.reserved)}",
        ),
        "",
        _ranks(memory),
        "",
        _units(memory),
        "",
        _buffers(memory),
        *_advice(memory, advice),
    )


def summary(memory: MemoryEstimate) -> str:
    """The estimate in one line, for other reports."""
    left = memory.headroom_bytes
    of_capacity = f"{size(abs(left))} {'free' if left >= 0 else 'too much'}"
    return (
        f"{size(memory.point_bytes)} per GPU expected on pipeline rank {memory.worst.rank}, of {size(memory.capacity_bytes)}: "
        f"{memory.verdict} ({of_capacity}; {likelihood(memory.fits_probability)})"
        + (f"; {host_text(memory)}" if memory.host_bytes or memory.disk_bytes else "")
    )


def host_text(memory: MemoryEstimate) -> str:
    """The bytes in the host's memory, and a GPU's share of it; those on its disks, whose room is not known."""
    room = "" if memory.fits_host else " (OOM)"
    on_disks = f", {size(memory.disk_bytes)} on its disks" if memory.disk_bytes else ""
    return (
        f"{size(memory.host_bytes)} per GPU in the host's memory, of {size(memory.host_capacity_bytes)}{room}{on_disks}"
    )


def verdict_text(
    verdict: str, fits_probability: float, point_bytes: float, upper_bytes: float, capacity_bytes: float
) -> str:
    """The verdict, coloured, with its probability, the expected peak, its upper bound and the capacity."""
    return (
        f"[bold {COLOURS[verdict]}]{verdict}[/]   {likelihood(fits_probability)}: "
        f"{size(point_bytes)} expected, {size(upper_bytes)} at most, of {size(capacity_bytes)}"
    )


def likelihood(fits_probability: float) -> str:
    """The probability of fitting in whole percent, with less than 1 % and more than 99 % called so."""
    return f"fits in {chance(fits_probability)} of runs"


def turning_text(advice: Advice) -> str:
    """The change that would turn the verdict, and what it frees."""
    freed = advice.point_bytes_before - advice.point_bytes
    return f"{advice.kind} (frees {size(freed)}): {advice_line(advice)}"


def _when(when: PeakMoment) -> str:
    if when.start_us is None or when.end_us is None:
        return f"in {when.action}"
    return f"in {when.action}, from {durations(when.start_us, when.end_us)}"


IN_FULL = {term: (term,) for term in TERMS}
IN_SHORT = {
    "state": ("parameters", "gradients", "optimizer"),
    "activations": ("activations",),
    "other": ("working", "buffers", "slack", "device"),
}
"""Column of a narrow table → the terms that it adds up."""


def _ranks(memory: MemoryEstimate) -> Table:
    """Each pipeline rank, with as much as the terminal has room for."""

    def form(columns: Mapping[str, Sequence[str]], *, when: bool) -> Table:
        return table(
            "  pipeline ranks at their peaks, GiB per GPU",
            memory.ranks,
            {},
            {
                "rank": lambda rank: str(rank.rank),
                "layers": lambda rank: str(rank.layers),
                **{name: partial(_added, terms) for name, terms in columns.items()},
                "peak": lambda rank: f"[bold]{gib(rank.peak)}[/]",
            },
            {"when": lambda rank: rank.when.action} if when else None,
        )

    return first_that_fits(form(IN_FULL, when=True), form(IN_FULL, when=False), form(IN_SHORT, when=False))


def _added(terms: Sequence[str], rank: RankMemory) -> str:
    return gib(sum(getattr(rank, term) for term in terms))


def _units(memory: MemoryEstimate) -> Table:
    return table(
        "  kinds of layers, per GPU; activations of one microbatch",
        memory.units,
        {"": lambda row: f"{row[0].name}{_repeats(row[0])}"},
        {
            "count": lambda row: str(row[1]),
            "parameters": lambda row: f"{row[0].weights.total:,}",
            "activations": lambda row: size(row[2].kept_bytes),
            "forward +": lambda row: size(row[2].forward_working_bytes),
            "backward +": lambda row: size(row[2].backward_working_bytes),
        },
    )


def _repeats(unit: Unit) -> str:
    return "" if unit.recompute == "none" or unit.kind is None else f", {unit.recompute} recompute"


def _buffers(memory: MemoryEstimate) -> Table:
    return table(
        f"  buffers of pipeline rank {memory.worst.rank}",
        memory.buffers,
        {"": lambda buffer: buffer.name},
        {"size": lambda buffer: size(buffer.size_bytes), "±": lambda buffer: size(buffer.width_bytes)},
        {"source": lambda buffer: buffer.source},
    )


def _advice(memory: MemoryEstimate, advice: Sequence[Advice]) -> list[str]:
    if memory.verdict == "FITS":
        return []
    if not advice:
        return ["", f"It fits with {NO_CHANGE}. {SEARCH}"]
    lines = ["", "[bold]Changes that make it fit, cheapest first, those on one line together:[/]"]
    return [*lines, *(f"  {advice_line(each)}" for each in advice[:MOST_ADVICE])]


def advice_line(advice: Advice) -> str:
    """One change as options of a command, with what it brings and costs."""
    changes = " ".join(f"--set {setting}" for setting in advice.settings)
    return f"{changes}   {advice.verdict} at {size(advice.point_bytes)}, step {duration(advice.step_us)} ({signed_percent(advice.cost)})"


def memory_json(memory: MemoryEstimate, advice: Iterable[Advice] = ()) -> dict[str, Any]:
    """Bytes of each pipeline rank and kind of layer, the buffers, the verdict, and the changes that would make the run fit."""
    rank = f"rank layers elements {' '.join(TERMS)} allocated reserved peak when"
    activations = "activations=kept_bytes components forward_working=forward_working_bytes backward_working=backward_working_bytes"
    layers = [
        picked(unit, "unit=name recompute") | {"count": count, "elements": unit.weights.total} | picked(of, activations)
        for unit, count, of in memory.units
    ]
    return versioned(
        "memory",
        picked(memory, "run=run.name feasible schedule=run.plan.schedule memory_profile=memory_profile.name")
        | own_values(memory.run.plan)
        | {"ranks": each_picked(memory.ranks, rank), "worst_rank": memory.worst.rank, "layers": layers}
        | picked(memory, f"buffers {VERDICT}")
        | (picked(memory, "host_bytes host_capacity_bytes") if memory.host_bytes else {})
        | (picked(memory, "disk_bytes") if memory.disk_bytes else {})
        | {"advice": [as_json(each) | {"cost": each.cost} for each in advice]},
    )


def misfit(memory: MemoryEstimate, *, point_bytes: float | None = None) -> str:
    """The verdict on a plan whose expected peak is above the memory, OOM or AT RISK, with the reason; '' for one whose peak is not.
    `point_bytes` replaces the expected peak of the estimate, and is judged by itself."""
    peak = memory.point_bytes if point_bytes is None else point_bytes
    too_much = peak - memory.capacity_bytes
    if not memory.fits_host:
        more = memory.host_bytes - memory.host_capacity_bytes
        return (
            f"OOM: {memory.run.name} leaves {size(memory.host_bytes)} per GPU in its host's memory, of which there are "
            f"{size(memory.host_capacity_bytes)} ({size(more)} too much)"
        )
    if too_much <= 0:
        return ""
    at_risk = point_bytes is None and memory.verdict == "AT RISK"
    chance = f"; {likelihood(memory.fits_probability)}" if at_risk else ""
    return (
        f"{'AT RISK' if at_risk else 'OOM'}: {memory.run.name} needs {size(peak)} per GPU on its fullest pipeline rank, and {memory.run.cluster.gpu.name} has "
        f"{size(memory.capacity_bytes)} ({size(too_much)} too much{chance})"
    )


def headlines(misfits: Sequence[str]) -> list[str]:
    """The first lines of a report on several plans, for those whose expected peak is above the memory; '' stands for another."""
    return [f"[bold red]{escape(why)}[/]" for why in dict.fromkeys(misfits) if why]


def smallest_in_words(smallest: SmallestCluster | None, replica: Replica) -> str:
    """The smallest cluster on which a plan fits, with what makes it so large."""
    if smallest is None:
        return (
            f"no number of nodes makes this plan fit with its global batch (one replica is {counted(replica.gpus, 'GPU')}); "
            "other degrees of parallelism may"
        )
    at_risk = ", AT RISK there" if smallest.verdict == "AT RISK" else ""
    where = f"{counted(smallest.gpus, 'GPU')} on {counted(smallest.nodes, 'node')}"
    if smallest.dp > replica.dp:
        return f"{where} for this tp, pp and cp: dp {smallest.dp}, fewer replicas do not fit{at_risk}"
    if not replica.folded:
        return f"{where}: one replica (tp · pp · cp){at_risk}"
    copies = f"{replica.dp} × tp · pp · cp" if replica.dp > 1 else "tp · pp · cp"
    return f"{where}: one copy of all experts, over {copies} ({replica.unfolded_gpus} GPUs with ranks of their own){at_risk}"
