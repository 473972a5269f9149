"""Memory of a GPU in an RL step, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.memory import headlines
from predict.report.provenance import first_lines_of, last_lines
from predict.report.text import figures_table
from predict.rl.memory import TERMS
from sampling.number_text import duration, percent, size
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.rl.memory import RlMemory
    from predict.rl.step import RlStep

VERSION = 1
IN_WORDS = {
    "other_models": "reference, reward, other model",
    "engine_weights": "engine's weights",
    "kv_cache": "engine's key-value cache",
    "engine_reserved": "engine's graphs and buffers",
}
"""Terms whose names do not say whose they are."""


def rl_memory_text(step: RlStep) -> RenderableType:
    """The memory of a GPU while it generates and while it updates, term by term, and what offload moves."""
    from rich.console import Group

    memory, section, actor = step.memory, step.rl.section, step.actor
    worst, rollout = memory.worst, section.rollout
    left = memory.capacity - worst.peak
    return Group(
        *headlines([rl_misfit(memory)]),
        *first_lines_of(actor),
        f"[bold]{escape(step.rl.name)}[/]  {section.placement}, {escape(step.rl.base.cluster.gpu.name)}",
        "",
        f"  verdict   [bold]{memory.verdict}[/]   {size(worst.peak)} expected per GPU, in {worst.phase}, of {size(memory.capacity)} "
        f"({size(abs(left))} {'free' if left >= 0 else 'too much'})",
        f"  rests on  the trainer: memory profile {actor.memory.memory_profile.name}, counted as for a training run; the engine: "
        f"{rollout.engine}, which takes {rollout.memory_share:g} of the memory and fills what its weights leave with cache",
        "",
        *rl_memory_parts(memory),
        "",
        *map(escape, last_lines(actor.provenance, analytic=actor.is_analytic)),
    )


def rl_memory_parts(memory: RlMemory) -> list[RenderableType]:
    """The terms of each moment, the cache in use, and what offload moves."""
    share = memory.kv_used / memory.generating.terms["kv_cache"]
    cache = f"cache in use at most: {size(memory.kv_used)}, {percent(share)} of it"
    moved: list[RenderableType] = ["", "offload, both ways", _moved(memory)] if memory.moved else []
    return [_terms(memory), "", cache, *moved]


def _terms(memory: RlMemory) -> Table:
    moments = memory.moments
    table = figures_table("", ("GiB per GPU",), [moment.phase for moment in moments])
    for term in TERMS:
        if any(term in moment.terms for moment in moments):
            table.add_row(
                IN_WORDS.get(term, term),
                *(f"{moment.terms[term] / GIB:.2f}" if term in moment.terms else "" for moment in moments),
            )
    table.add_row("peak", *(f"{moment.peak / GIB:.2f}" for moment in moments))
    return table


def _moved(memory: RlMemory) -> Table:
    table = figures_table("", ("phase", "state"), ("GiB", "time"))
    for each in memory.moved:
        table.add_row(each.phase, each.state, f"{each.bytes_moved / GIB:.2f}", duration(each.time.median_us))
    return table


def rl_misfit(memory: RlMemory) -> str:
    """Why a step does not fit, for --check; empty where it does."""
    if memory.fits:
        return ""
    worst = memory.worst
    return (
        f"{worst.phase} needs {worst.peak / GIB:.1f} GiB per GPU, which has {memory.capacity / GIB:.1f}; "
        "offload state (rl.offload), give the engine less (rl.rollout.memory_share), or shard more"
    )


def rl_memory_json(memory: RlMemory) -> dict[str, Any]:
    """Bytes per GPU by term in each moment, and the bytes and µs of each way of offloaded state."""
    return {
        "version": VERSION,
        "capacity": memory.capacity,
        "fits": memory.fits,
        "moments": {moment.phase: {**moment.terms, "peak": moment.peak} for moment in memory.moments},
        "kv_used": memory.kv_used,
        "moved": [
            {"phase": each.phase, "state": each.state, "bytes": each.bytes_moved, "time_us": each.time.median_us}
            for each in memory.moved
        ],
    }
