"""The ledger of an RL step as text, JSON and long table: the account of each lane, phases with their parts, and their books."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.report.ledger import ledger_json, numbers, quantity
from predict.report.provenance import first_lines_of
from predict.report.rl.memory import rl_memory_json, rl_memory_parts
from predict.report.rl.step import phase_json, rests_on, tail_in_words
from predict.report.text import figures_table
from predict.rl.books import WAITING
from predict.rl.phase import NOTHING_US
from predict.serialise import as_json
from sampling.files.faults import counted
from sampling.number_text import bar, duration, durations, percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.rl.books import RlLedger
    from predict.rl.phase import Phase


LEAST = 0.005
"""Share of the step from which on a part has a line of its own."""
OTHER = "other parts"


def rl_ledger_text(ledger: RlLedger) -> RenderableType:
    from rich.console import Group

    step, time = ledger.step, ledger.step.time
    return Group(
        *first_lines_of(step.actor),
        f"[bold]{escape(step.rl.name)}[/]  {step.rl.section.algorithm}, {step.rl.section.placement}",
        "",
        f"  step time   [bold]{duration(time.median_us)}[/]   (90 %: {durations(time.low_us, time.high_us)})",
        f"  tokens      {step.rl.samples.tokens:,} per step, {step.tokens_per_second_per_gpu:,.0f} per second and GPU",
        "",
        *_accounts(ledger),
        _mfu(ledger),
        "",
        "[bold]  memory[/]",
        *rl_memory_parts(step.memory),
        "",
        *_communication(ledger),
        "",
        *_schedule(ledger),
        "",
        *_calibration(ledger),
    )


def _accounts(ledger: RlLedger) -> list[RenderableType]:
    """A table for each lane: its phases, which add up to the step, and below each its parts."""
    step_us = ledger.step.time.median_us
    found: list[RenderableType] = []
    for lane, account in ledger.accounts_us.items():
        table = figures_table(f"  the step on {lane}", ("",), ("time", "share"))
        table.add_column("")
        for name, time_us in account.items():
            share = time_us / step_us
            table.add_row(name, duration(time_us), percent(share), bar(share))
            for heading, part_us in _parts(ledger.step.phase(name), LEAST * step_us).items():
                table.add_row(f"    {heading}", duration(part_us), percent(part_us / step_us), "")
        found += [table, ""]
    return found


def _parts(phase: Phase | None, least_us: float) -> dict[str, float]:
    """The parts of a phase that take as long at least, the longest first, and the others together; none of a phase of one part."""
    parts = phase.parts if phase else {}
    long = {heading: time_us for heading, time_us in parts.items() if time_us >= least_us}
    other_us = sum(parts.values()) - sum(long.values())
    told = dict(sorted(long.items(), key=lambda part: -part[1])) | ({OTHER: other_us} if other_us > NOTHING_US else {})
    return told if len(told) > 1 else {}


def _mfu(ledger: RlLedger) -> Table:
    conventions = list(dict.fromkeys(name for phase in ledger.step.phases for name in phase.mfu))
    columns = [text for name in conventions for text in (f"FLOPs, {name}", f"MFU, {name}")]
    table = figures_table("  MFU by convention; a pass counts a third", ("",), columns)
    for phase in ledger.step.phases:
        if phase.mfu:
            cells = []
            for name in conventions:
                figure = phase.mfu[name]
                cells += [
                    "refused" if figure.flops is None else quantity(figure.flops),
                    "" if figure.mfu is None else f"{figure.mfu:.1%}",
                ]
            table.add_row(phase.name, *cells)
    return table


def _communication(ledger: RlLedger) -> list[RenderableType]:
    book = ledger.communication_us
    table = figures_table("  communication that the phases wait for", ("", "phase"), ("time", "of step"))
    for (heading, phase), time_us in book.items():
        table.add_row(heading, phase, duration(time_us), percent(time_us / ledger.step.time.median_us))
    weights = f"  weights     {quantity(ledger.weights_bytes)}B in {ledger.weight_tensors:,} tensors, by {ledger.step.rl.section.weight_sync.method}"
    return [table, weights] if book else [weights]


def _schedule(ledger: RlLedger) -> list[RenderableType]:
    step, section, run = ledger.step, ledger.step.rl.section, ledger.step.actor.run
    queue = step.queue
    lines: list[RenderableType] = [
        "[bold]  schedule[/]",
        f"  samples     {section.prompts:,} prompts × {section.n}; {counted(section.optimizer_steps, 'optimizer step')} in {counted(section.epochs, 'epoch')}",
        f"  update      {run.microbatches:,} microbatches of {run.batch.micro} × {run.batch.seq_len:,} tokens on each replica, padding {section.padding}",
        f"  engines     {step.rollout.replicas:,}; {tail_in_words(step)}",
    ]
    waiting = {lane: account[WAITING] for lane, account in ledger.accounts_us.items() if WAITING in account}
    lines += [f"  waiting     {lane}: {duration(time_us)}" for lane, time_us in waiting.items()]
    if len(ledger.accounts_us) > 1:
        lines.append(
            f"  queue       {queue.generating:.1f} steps of samples in the engines, {queue.waiting:.1f} waiting, {queue.staleness:.1f} updates old when trained on"
        )
    return lines


def _calibration(ledger: RlLedger) -> list[RenderableType]:
    lines: list[RenderableType] = ["[bold]  calibration[/]", f"  rests on    {rests_on(ledger.step)}"]
    if factors := ledger.factors:
        lines.append(
            f"  factors     {factors.rollout:g} on generation, {factors.update:g} on updates, {factors.passes:g} on passes without a backward"
        )
    if ledger.terms:
        table = figures_table("  priors", ("",), ("value", "bounds"))
        table.add_column("what it is")
        for name, term in ledger.terms.items():
            table.add_row(name, f"{term.value:g}", f"{term.low:g} to {term.high:g}", escape(term.meaning))
        lines.append(table)
    if unknown := ledger.step.rl.section.unknown:
        lines.append(f"  unknown     {escape(', '.join(unknown))}: a guess here")
    return [*lines, "  one optimizer step of the actor has five books of its own: --json"]


VERSION = 1
ENTRY: Mapping[str, tuple[str, ...]] = {
    "moved": ("phase", "state"),
    "exposed": ("heading", "phase"),
    "terms": ("name",),
    "phases": ("name",),
}
"""List of a book → the keys that name an entry."""
BOOKS = ("account_us", "phases", "memory", "communication", "schedule", "calibration")


def rl_ledger_json(ledger: RlLedger) -> dict[str, Any]:
    step, section = ledger.step, ledger.step.rl.section
    return {
        "version": VERSION,
        "run": step.rl.name,
        "step_time_us": as_json(step.time),
        "account_us": ledger.accounts_us,
        "phases": [{"name": phase.name, **phase_json(phase)} for phase in step.phases],
        "memory": rl_memory_json(step.memory),
        "communication": {
            "exposed": [
                {"heading": heading, "phase": phase, "us": time_us}
                for (heading, phase), time_us in ledger.communication_us.items()
            ],
            "weights_bytes": ledger.weights_bytes,
            "weight_tensors": ledger.weight_tensors,
        },
        "schedule": {
            "prompts": section.prompts,
            "n": section.n,
            "optimizer_steps": section.optimizer_steps,
            "epochs": section.epochs,
            "microbatches": step.actor.run.microbatches,
            "row_tokens": step.actor.run.batch.seq_len,
            "bubble_fraction": step.actor.bubble_fraction,
            "tail_share": step.rollout.tail_share,
            "wait_gen_us": step.wait_gen_us,
            "idle_gen_us": step.idle_gen_us,
            "queue": asdict(step.queue),
        },
        "calibration": {
            "shares": ledger.sources,
            "by_source_us": ledger.by_source_us,
            "by_class_us": ledger.by_class_us,
            "factors": ledger.factors and asdict(ledger.factors),
            "terms": [{"name": name, **asdict(term)} for name, term in ledger.terms.items()],
            "unknown": list(section.unknown),
        },
        "optimizer_step": ledger.optimizer_step and ledger_json(ledger.optimizer_step),
    }


def rl_ledger_rows(ledger: RlLedger) -> list[dict[str, Any]]:
    """The numbers of all books, in the order of the JSON and under its names."""
    content = rl_ledger_json(ledger)
    return [
        {"run": content["run"], "book": book, "entry": entry, "quantity": quantity, "value": value}
        for book in BOOKS
        for entry, quantity, value in numbers({book: content[book]} if book == "phases" else content[book], ENTRY)
    ]
