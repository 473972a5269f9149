"""Memory of a GPU in an RL step, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.reports.memory import headlines
from predict.reports.provenance import first_lines_of, last_lines
from predict.reports.text import escape, fact, figures_table, head, stacked, table
from predict.rl.memory import TERMS
from predict.serialise import picked, versioned
from sampling.number_text import duration, percent, size
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.rl.memory import RlMemory
    from predict.rl.step import RlStep

IN_WORDS = {
    "other_models": "reference, reward, other model",
    "engine_weights": "engine's weights",
    "kv_cache": "engine's key-value cache",
    "engine_reserved": "engine's graphs and buffers",
}
"""Terms whose names do not say whose they are."""


def rl_memory_text(step: RlStep) -> RenderableType:
    """The memory of a GPU while it generates and while it updates, term by term, and what offload moves."""
    memory, section, actor = step.memory, step.rl.section, step.actor
    worst, rollout = memory.worst, section.rollout
    left = memory.capacity - worst.peak
    return stacked(
        *headlines([rl_misfit(memory)]),
        *first_lines_of(actor),
        head(step.rl.name, f"{section.placement}, {step.rl.base.cluster.gpu.name}"),
        "",
        fact(
            "verdict",
            f"[bold]{memory.verdict}[/]   {size(worst.peak)} expected per GPU, in {worst.phase}, of {size(memory.capacity)} "
            f"({size(abs(left))} {'free' if left >= 0 else 'too much'})",
        ),
        fact(
            "rests on",
            f"the trainer: memory profile {actor.memory.memory_profile.name}, counted as for a training run; the engine: "
            f"{rollout.engine}, which takes {rollout.memory_share:g} of the memory and fills what its weights leave with cache",
        ),
        "",
        *rl_memory_parts(memory),
        "",
        *map(escape, last_lines(actor.provenance, analytic=actor.is_analytic)),
    )


def rl_memory_parts(memory: RlMemory) -> list[RenderableType]:
    """The terms of each moment, the cache in use, and what offload moves."""
    share = memory.kv_used / memory.generating.terms["kv_cache"]
    cache = f"cache in use at most: {size(memory.kv_used)}, {percent(share)} of it"
    moved: list[RenderableType] = ["", _moved(memory)] if memory.moved else []
    return [_terms(memory), "", cache, *moved]


def _terms(memory: RlMemory) -> Table:
    moments = memory.moments
    made = figures_table("", ("GiB per GPU",), [moment.phase for moment in moments])
    for term in TERMS:
        if any(term in moment.terms for moment in moments):
            sizes = (f"{moment.terms[term] / GIB:.2f}" if term in moment.terms else "" for moment in moments)
            made.add_row(IN_WORDS.get(term, term), *sizes)
    made.add_row("peak", *(f"{moment.peak / GIB:.2f}" for moment in moments))
    return made


def _moved(memory: RlMemory) -> Table:
    return table(
        "offload, both ways",
        memory.moved,
        {"phase": lambda each: each.phase, "state": lambda each: each.state},
        {
            "GiB": lambda each: f"{each.bytes_moved / GIB:.2f}",
            "time": lambda each: duration(each.time.median_us),
        },
    )


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
    return versioned(
        "rl-memory",
        picked(memory, "capacity fits")
        | {
            "moments": {moment.phase: {**moment.terms, "peak": moment.peak} for moment in memory.moments},
            "kv_used": memory.kv_used,
            "moved": [picked(each, "phase state bytes=bytes_moved time_us=time.median_us") for each in memory.moved],
        },
    )
