"""RL steps and their memory as text and JSON, alone and phase by phase next to each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from predict.reports import text
from predict.reports.memory import COLOURS, headlines, likelihood
from predict.reports.printed import Renderable, Table
from predict.rl.books import RlLedger
from predict.rl.memory import TERMS
from predict.rl.phases import DRIVER
from predict.rl.rollout import BEFORE_TAIL
from predict.rl.section import COLOCATED
from predict.serialise import picked, versioned
from sampling.files.faults import counted
from sampling.number_text import (
    count,
    duration,
    durations,
    gib,
    percent,
    plain,
    quantity,
    significant,
    size,
    whole_percent,
)

if TYPE_CHECKING:
    from predict.rl.memory import RlMemory
    from predict.rl.phases import Phase
    from predict.rl.step import RlDraws, RlStep


IN_WORDS = {
    "other_models": "reference, reward, other model",
    "engine_weights": "engine's weights",
    "kv_cache": "engine's key-value cache",
    "engine_reserved": "engine's graphs and buffers",
}
"""Terms whose names do not say whose they are."""


def rl_memory_text(step: RlStep) -> Renderable:
    """The memory of a GPU while it generates and while it updates, term by term, and what offload moves."""
    memory, section, actor = step.memory, step.rl.section, step.actor
    worst, rollout = memory.worst, section.rollout
    left = memory.capacity - worst.peak
    return text.stacked(
        *headlines([rl_misfit(memory)]),
        *text.first_lines_of(actor),
        text.head(step.rl.name, f"{section.placement}, {step.rl.base.cluster.gpu.name}"),
        "",
        text.fact(
            "verdict",
            f"[bold {COLOURS[memory.verdict]}]{memory.verdict}[/]   {likelihood(memory.fits_probability)}: {size(worst.peak)} expected per GPU, "
            f"in {worst.phase}, of {size(memory.capacity)} ({size(abs(left))} {'free' if left >= 0 else 'too much'})",
        ),
        text.fact(
            "rests on",
            f"the trainer: memory profile {actor.memory.memory_profile.name}, counted as for a training run; the engine: "
            f"{rollout.engine}, which takes {plain(rollout.memory_share)} of the memory and fills what its weights leave with cache",
        ),
        "",
        *rl_memory_parts(memory),
        "",
        *map(
            text.escape,
            text.last_lines(actor.provenance, analytic=actor.is_analytic, listed="its hardware file has them"),
        ),
    )


def rl_memory_parts(memory: RlMemory) -> list[Renderable]:
    """The terms of each moment, the cache in use, and what offload moves."""
    share = memory.kv_used / memory.generating.terms["kv_cache"]
    cache = f"cache in use at most: {size(memory.kv_used)}, {percent(share)} of it"
    moved: list[Renderable] = ["", _moved(memory)] if memory.moved else []
    return [_terms(memory), "", cache, *moved]


def _terms(memory: RlMemory) -> Table:
    moments = memory.moments
    made = text.figures_table("", ("GiB per GPU",), [moment.phase for moment in moments])
    for term in TERMS:
        if any(term in moment.terms for moment in moments):
            sizes = (gib(moment.terms[term]) if term in moment.terms else "" for moment in moments)
            made.add_row(IN_WORDS.get(term, term), *sizes)
    made.add_row("peak", *(gib(moment.peak) for moment in moments))
    made.add_row("at most, in 95 % of runs", *(gib(moment.upper) for moment in moments))
    return made


def _moved(memory: RlMemory) -> Table:
    return text.table(
        "offload, both ways",
        memory.moved,
        {"phase": lambda each: each.phase, "state": lambda each: each.state},
        {
            "GiB": lambda each: gib(each.bytes_moved),
            "time": lambda each: duration(each.time.median_us),
        },
    )


def rl_misfit(memory: RlMemory) -> str:
    """The verdict on a step whose expected peak is above the memory, with the reason, for --check; empty for another."""
    if memory.fits:
        return ""
    worst = memory.worst
    is_of_microbatches = worst in memory.passing and worst.terms["activations"] == max(worst.terms.values())
    fix = (
        "make its microbatches smaller (rl.passes)"
        if is_of_microbatches
        else "offload state (rl.offload), give the engine less (rl.rollout.memory_share)"
    )
    return f"{memory.verdict}: {worst.phase} needs {size(worst.peak)} per GPU, which has {size(memory.capacity)}; {fix}, or shard more"


def rl_memory_json(memory: RlMemory) -> dict[str, Any]:
    """Bytes per GPU by term in each moment, and the bytes and µs of each way of offloaded state."""
    return versioned(
        "rl-memory",
        picked(memory, "capacity fits verdict fits_probability")
        | {
            "moments": {
                moment.phase: {**moment.terms, **picked(moment, "peak upper fits_probability")}
                for moment in memory.moments
            },
            "kv_used": memory.kv_used,
            "moved": [picked(each, "phase state bytes=bytes_moved time_us=time.median_us") for each in memory.moved],
        },
    )


LEAST = 0.0005
"""Share of the phases' time from which on a source is shown."""
DRAWN = ("step", "gen")
"""What differs from one draw of the lengths to the next, and is shown."""


def headline(step: RlStep) -> str:
    """The run in one line: model, machines, algorithm, placement and samples."""
    section, base = step.rl.section, step.rl.base
    engines = f" + {section.rollout.gpus} for engines" if section.rollout.gpus else ""
    return (
        f"{base.model.name} on {base.cluster.world_size}{engines} {base.cluster.gpu.name}, {section.algorithm}, {section.placement}, "
        f"{counted(section.prompts, 'prompt')} × {section.n}, mean response {count(step.rl.samples.response.mean())} tokens"
    )


def cut_in_words(step: RlStep) -> str:
    """The number of responses that are cut at their greatest length; nothing where none is."""
    samples, section = step.rl.samples, step.rl.section
    if not samples.clipped:
        return ""
    return f"; {samples.clipped:,} ({percent(samples.clipped / section.samples)}) cut at {section.response_max:,}"


def tail_in_words(step: RlStep) -> str:
    """The time that generation waits for the slowest tenth of the responses; where that many are cut at one length,
    that they end together."""
    share = step.rl.samples.clipped / step.rl.section.samples
    if share >= 1 - BEFORE_TAIL:
        return f"{percent(share)} of the responses are cut at one length, so the engines end about together"
    return f"the slowest tenth of the responses takes the last {whole_percent(step.rollout.tail_share)} of generation"


def rl_step_text(step: RlStep, draws: RlDraws | None = None) -> Renderable:
    """The step for a terminal: what runs, its phases, and how they make up the step."""
    section, base, samples, rollout = step.rl.section, step.rl.base, step.rl.samples, step.rollout
    engines = f", engines on {section.rollout.gpus} more" if section.rollout.gpus else ""
    return text.stacked(
        *headlines([rl_misfit(step.memory)]),
        *text.first_lines_of(step.actor),
        text.head(step.rl.name, f"{section.algorithm}, {section.placement}"),
        "",
        text.step_fact(step.time),
        text.fact("throughput", f"{plain(step.tokens_per_second_per_gpu)} tokens/s per GPU"),
        text.fact("rests on", rests_on(step)),
        text.fact(
            "model",
            f"{text.escape(base.model.name)} on {base.cluster.world_size} {text.escape(base.cluster.gpu.name)}{engines}",
        ),
        text.fact(
            "samples",
            f"{counted(section.prompts, 'prompt')} × {section.n}, {samples.tokens:,} tokens; mean response {count(samples.response.mean())}, "
            f"longest {samples.response.max():,}{cut_in_words(step)}",
        ),
        text.fact(
            "engines",
            f"{rollout.replicas} of tp {section.rollout.tp}, {section.rollout.engine}, step by {section.rollout.step_model}",
        ),
        text.fact("memory", _memory(step)),
        *(
            [text.fact("unknown", f"{text.escape(', '.join(section.unknown))}: a guess here")]
            if section.unknown
            else []
        ),
        "",
        _phases(step),
        *_left_out_of_mfu(step),
        "",
        *_composition(step),
        *(["", *_draws(draws)] if draws else []),
    )


def rests_on(*steps: RlStep) -> str:
    """The sources of the phases' times with their shares, of several steps the least and the most, the largest first; `assumed` are
    factors, priors and settings."""
    sources = [RlLedger(step=step).sources for step in steps]
    shares = {name: [each.get(name, 0.0) for each in sources] for name in dict.fromkeys(itertools.chain(*sources))}
    ordered = sorted(shares.items(), key=lambda source: -max(source[1]))
    return " · ".join(f"{_range(of)} {source}" for source, of in ordered if max(of) >= LEAST)


def _range(shares: Sequence[float]) -> str:
    least, most = percent(min(shares)), percent(max(shares))
    return most if least == most else f"{least.removesuffix('%').strip()} to {most}"


def notes_on_steps(steps: Sequence[RlStep]) -> list[str]:
    """The first lines of several steps that are printed together, and what they rest on."""
    return [*text.first_lines_of(*(step.actor for step in steps)), f"rests on: {rests_on(*steps)}"]


def _phases(step: RlStep) -> Table:
    """The phases, with as much as the terminal has room for."""
    names: text.Columns[Phase] = {"phase": attrgetter("name"), "bound by": attrgetter("bound_by")}
    figures: text.Columns[Phase] = {
        "time": lambda phase: duration(phase.time.median_us),
        "90 % interval": lambda phase: durations(phase.time.low_us, phase.time.high_us),
        "GPUs": lambda phase: str(phase.gpus),
        "FLOPs": lambda phase: quantity(of.flops) if (of := phase.mfu.get("palm")) and of.flops else "",
        "MFU by palm": lambda phase: _mfu(phase, "palm"),
        "MFU by verl": lambda phase: _mfu(phase, "verl"),
    }

    def without(*left_out: str) -> Table:
        kept = [{name: cell for name, cell in each.items() if name not in left_out} for each in (names, figures)]
        return text.table("", step.phases, *kept)

    narrow = ("FLOPs", "MFU by verl")
    return text.first_that_fits(without(), without(*narrow), without(*narrow, "GPUs", "MFU by palm", "bound by"))


def _left_out_of_mfu(step: RlStep) -> Iterator[str]:
    """The time of a phase that its MFU does not count, where the two columns would contradict each other."""
    for phase in step.phases:
        if phase.mfu and phase.parts.get(DRIVER):
            yield f"MFU of {phase.name} leaves out the {duration(phase.parts[DRIVER])} of it in which the driver sends the samples"


def _mfu(phase: Phase, convention: str) -> str:
    of = phase.mfu.get(convention)
    return percent(of.mfu) if of and of.mfu else ""


def _composition(step: RlStep) -> list[str]:
    tail = tail_in_words(step)
    cache = (
        f"cache {whole_percent(step.rollout.kv_share)} in use at most, {step.rollout.served.preemptions:,} preemptions"
    )
    if step.rl.section.placement == COLOCATED:
        return ["phases in turn add up to the step", f"{tail}; {cache}"]
    waits = f"trainer waits {duration(step.wait_gen_us)}, engines wait {duration(step.idle_gen_us)}"
    queue = step.queue
    between = f"steps of samples: {significant(queue.generating)} in the engines, {significant(queue.waiting)} waiting; {significant(queue.staleness)} updates old when trained on"
    return [f"trainer and engines side by side, and both wait for new weights; {waits}", between, f"{tail}; {cache}"]


def _draws(draws: RlDraws) -> list[str]:
    """The spread of steps, one phrase for the step and one for generation."""
    found = {name: draws.percentiles_us(name) for name in DRAWN}
    return [
        f"{name} over {counted(len(draws.steps), 'draw')} of the lengths: {duration(times['p50'])}, nine in ten under {duration(times['p90'])}, "
        f"one in ten under {duration(times['p10'])}"
        for name, times in found.items()
    ]


def _memory(step: RlStep) -> str:
    """The fullest moments and whether they fit."""
    memory = step.memory
    moments = ", ".join(f"{moment.phase} {gib(moment.peak)}" for moment in memory.moments)
    return f"{moments} GiB per GPU, of {gib(memory.capacity)}; the engine takes {gib(step.engine_bytes)}: {memory.verdict} ({likelihood(memory.fits_probability)})"


PHASE = "time_us=time gpus bound_by parts_us=parts sources mfu"
"""One phase in the JSON: its time, its parts, and what they rest on."""


def rl_step_json(step: RlStep, draws: RlDraws | None = None) -> dict[str, Any]:
    """The content of `predict rl-step --json`."""
    actor = step.actor
    drawn = draws and {f"{name}_us": draws.percentiles_us(name) for name in DRAWN} | {"count": len(draws.steps)}
    return versioned(
        "rl-step",
        {"config": step.rl.name}
        | picked(step.rl.section, "algorithm placement staleness samples")
        | picked(step, "tokens=rl.samples.tokens gpus=rl.gpus step_us=time tokens_per_second_per_gpu")
        | {
            "sources": RlLedger(step=step).sources,
            "notes": text.first_notes(actor.run, actor.provenance, analytic=actor.is_analytic),
            "phases": {phase.name: picked(phase, PHASE) for phase in step.phases},
        }
        | picked(step, "queue wait_gen_us idle_gen_us")
        | {
            "rollout": picked(
                step.rollout,
                "replicas tail_share kv_share preemptions=served.preemptions engine_steps=served.steps",
            ),
            "memory_bytes": picked(step, "update_peak=actor.memory.worst.peak engine=engine_bytes"),
            "memory": rl_memory_json(step.memory),
        }
        | picked(step, "memory_verdict=memory.verdict unknown=rl.section.unknown")
        | {"draws": drawn},
    )
