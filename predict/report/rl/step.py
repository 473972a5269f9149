"""RL steps as text and JSON, alone and phase by phase beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.ledger import quantity
from predict.report.memory import headlines
from predict.report.provenance import first_lines_of, first_notes
from predict.report.rl.memory import rl_memory_json, rl_misfit
from predict.report.text import figures_table
from predict.rl.books import RlLedger
from predict.rl.phase import NAMES
from predict.rl.rollout import BEFORE_TAIL
from predict.rl.run.section import COLOCATED
from predict.serialise import as_json
from sampling.number_text import duration, percent, plain, signed_percent
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.rl.draws import RlDraws
    from predict.rl.phase import Phase
    from predict.rl.step import RlStep


VERSION = 1
LEAST = 0.0005
"""Share of the phases' time from which on a source is told."""
DRAWN = ("step", "gen")
"""What differs from one draw of the lengths to the next, and is told."""


def headline(step: RlStep) -> str:
    """The run in one line: model, machines, algorithm, placement and samples."""
    section, base = step.rl.section, step.rl.base
    engines = f" + {section.rollout.gpus} for engines" if section.rollout.gpus else ""
    return (
        f"{base.model.name} on {base.cluster.world_size}{engines} {base.cluster.gpu.name}, {section.algorithm}, {section.placement}, "
        f"{section.prompts:,} prompts × {section.n}, mean response {step.rl.samples.response.mean():,.0f} tokens"
    )


def cut_in_words(step: RlStep) -> str:
    """The number of responses that are cut at their greatest length; nothing where none is."""
    samples, section = step.rl.samples, step.rl.section
    if not samples.clipped:
        return ""
    return f"; {samples.clipped:,} ({percent(samples.clipped / section.samples)}) cut at {section.response_max:,}"


def tail_in_words(step: RlStep) -> str:
    """The time that generation waits for the slowest tenth of the responses; where that many are cut at one length, that they end together."""
    share = step.rl.samples.clipped / step.rl.section.samples
    if share >= 1 - BEFORE_TAIL:
        return f"{percent(share)} of the responses are cut at one length, so the engines end about together"
    return f"the slowest tenth of the responses takes the last {step.rollout.tail_share:.0%} of generation"


def rl_step_text(step: RlStep, draws: RlDraws | None = None) -> RenderableType:
    """The step for a terminal: what runs, its phases, and how they make up the step."""
    from rich.console import Group

    section, base, time = step.rl.section, step.rl.base, step.time
    lines: list[RenderableType] = [
        *headlines([rl_misfit(step.memory)]),
        *first_lines_of(step.actor),
        f"{escape(step.rl.name)}  {section.algorithm}, {section.placement}",
        f"model    {escape(base.model.name)} on {base.cluster.world_size} {escape(base.cluster.gpu.name)}"
        + (f", engines on {section.rollout.gpus} more" if section.rollout.gpus else ""),
        f"samples  {section.prompts:,} prompts × {section.n}, {step.rl.samples.tokens:,} tokens; mean response "
        f"{step.rl.samples.response.mean():,.0f}, longest {step.rl.samples.response.max():,}{cut_in_words(step)}",
        f"engines  {step.rollout.replicas} of tp {section.rollout.tp}, {section.rollout.engine}, step by {section.rollout.step_model}",
        "",
        f"step     {duration(time.median_us)}   (90 %: {duration(time.low_us)} to {duration(time.high_us)}), "
        f"{plain(step.tokens_per_second_per_gpu)} tokens/s per GPU",
        f"rests on {rests_on(step)}",
        "",
        _phases(step),
        "",
        *_composition(step),
        *_memory(step),
    ]
    if draws:
        lines += ["", *_draws(draws)]
    if section.unknown:
        lines += ["", f"unknown, and a guess here: {escape(', '.join(section.unknown))}"]
    return Group(*lines)


def rests_on(step: RlStep) -> str:
    """The sources of the phases' times with their shares, the largest first; `assumed` are factors, priors and settings."""
    shares = sorted(RlLedger(step=step).sources.items(), key=lambda source: -source[1])
    return " · ".join(f"{share:.1%} {source}" for source, share in shares if share >= LEAST)


def _phases(step: RlStep) -> Table:
    table = figures_table("", ("phase", "bound by"), ("time", "90 % interval", "GPUs", "FLOPs", "MFU", "MFU by verl"))
    for phase in step.phases:
        palm, verl = phase.mfu.get("palm"), phase.mfu.get("verl")
        table.add_row(
            phase.name,
            phase.bound_by,
            duration(phase.time.median_us),
            f"{duration(phase.time.low_us)} to {duration(phase.time.high_us)}",
            str(phase.gpus),
            quantity(palm.flops) if palm and palm.flops else "",
            f"{palm.mfu:.1%}" if palm and palm.mfu else "",
            f"{verl.mfu:.1%}" if verl and verl.mfu else "",
        )
    return table


def _composition(step: RlStep) -> list[str]:
    tail = tail_in_words(step)
    cache = f"cache {step.rollout.kv_share:.0%} in use at most, {step.rollout.served.preemptions:,} preemptions"
    if step.rl.section.placement == COLOCATED:
        return ["phases in turn add up to the step", f"{tail}; {cache}"]
    waits = f"trainer waits {duration(step.wait_gen_us)}, engines wait {duration(step.idle_gen_us)}"
    queue = step.queue
    between = f"steps of samples: {queue.generating:.1f} in the engines, {queue.waiting:.1f} waiting; {queue.staleness:.1f} updates old when trained on"
    return [f"trainer and engines side by side, and both wait for new weights; {waits}", between, f"{tail}; {cache}"]


def _draws(draws: RlDraws) -> list[str]:
    """The spread of steps, one phrase for the step and one for generation."""
    found = {name: draws.percentiles_us(name) for name in DRAWN}
    return [
        f"{name} over {len(draws.steps)} draws of the lengths: {duration(times['p50'])}, nine in ten under {duration(times['p90'])}, "
        f"one in ten under {duration(times['p10'])}"
        for name, times in found.items()
    ]


def _memory(step: RlStep) -> list[str]:
    """The fullest moments and whether they fit."""
    memory = step.memory
    moments = ", ".join(f"{moment.phase} {moment.peak / GIB:.1f}" for moment in memory.moments)
    return [
        f"memory per GPU, of {memory.capacity / GIB:.1f} GiB: {moments}; the engine takes {step.engine_bytes / GIB:.1f}: {memory.verdict}"
    ]


def rl_step_json(step: RlStep, draws: RlDraws | None = None) -> dict[str, Any]:
    """The stable content of `predict rl-step --json`."""
    section = step.rl.section
    return {
        "version": VERSION,
        "config": step.rl.name,
        "algorithm": section.algorithm,
        "placement": section.placement,
        "staleness": section.staleness,
        "samples": section.samples,
        "tokens": step.rl.samples.tokens,
        "gpus": step.rl.gpus,
        "step_us": as_json(step.time),
        "tokens_per_second_per_gpu": step.tokens_per_second_per_gpu,
        "sources": RlLedger(step=step).sources,
        "notes": first_notes(step.actor.run, step.actor.provenance, analytic=step.actor.is_analytic),
        "phases": {phase.name: phase_json(phase) for phase in step.phases},
        "queue": asdict(step.queue),
        "wait_gen_us": step.wait_gen_us,
        "idle_gen_us": step.idle_gen_us,
        "rollout": {
            "replicas": step.rollout.replicas,
            "tail_share": step.rollout.tail_share,
            "kv_share": step.rollout.kv_share,
            "preemptions": step.rollout.served.preemptions,
            "engine_steps": step.rollout.served.steps,
        },
        "memory_bytes": {"update_peak": step.actor.memory.worst.peak, "engine": step.engine_bytes},
        "memory": rl_memory_json(step.memory),
        "memory_verdict": step.memory.verdict,
        "unknown": list(section.unknown),
        "draws": {f"{name}_us": draws.percentiles_us(name) for name in DRAWN} | {"count": len(draws.steps)}
        if draws
        else None,
    }


def phase_json(phase: Phase) -> dict[str, Any]:
    """One phase: its time, its parts, and what they rest on."""
    return {
        "time_us": as_json(phase.time),
        "gpus": phase.gpus,
        "bound_by": phase.bound_by,
        "parts_us": dict(phase.parts),
        "sources": dict(phase.sources),
        "mfu": {name: asdict(figure) for name, figure in phase.mfu.items()},
    }


COMPARE_VERSION = 1


def rl_compare_text(steps: Sequence[RlStep]) -> Table:
    """A column for each step: its phases, the step, what it trains on per second, and its memory; with the change from the first."""
    table = figures_table("", ("",), [escape(step.rl.name) for step in steps])
    for name in NAMES:
        phases = [step.phase(name) for step in steps]
        if any(phases):
            _add(table, name, [phase.time.median_us if phase else None for phase in phases])
    _add(table, "step", [step.time.median_us for step in steps])
    table.add_row("tokens/s per GPU", *(f"{step.tokens_per_second_per_gpu:,.0f}" for step in steps))
    table.add_row("GPUs", *(str(step.rl.gpus) for step in steps))
    table.add_row("most memory per GPU", *(f"{step.memory.worst.peak / GIB:.1f} GiB" for step in steps))
    return table


def _add(table: Table, name: str, times_us: Sequence[float | None]) -> None:
    """A row of times, those after the first with their change."""
    first, *others = times_us
    cells = ["" if first is None else duration(first)]
    for time_us in others:
        change = f" ({signed_percent(time_us / first - 1, decimals=0)})" if time_us is not None and first else ""
        cells.append("" if time_us is None else duration(time_us) + change)
    table.add_row(name, *cells)


def rl_compare_json(steps: Sequence[RlStep]) -> dict[str, Any]:
    """The content of `predict rl-step --json` for each, in their order."""
    return {"version": COMPARE_VERSION, "steps": [rl_step_json(step) for step in steps]}
