"""The ledger of an RL step as text, JSON and long table: the account of each lane, phases with their parts, and their books.

Times are µs, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from predict.reports import text
from predict.reports.ledger import constants_table, ledger_json, rows_of_books
from predict.reports.printed import Renderable, Table
from predict.reports.rl_step import PHASE, rests_on, rl_memory_json, rl_memory_parts, tail_in_words
from predict.rl.books import WAITING
from predict.rl.phases import NOTHING_US
from predict.serialise import as_json, picked, versioned
from sampling.files.faults import counted
from sampling.number_text import count, duration, percent, plain, quantity, significant

if TYPE_CHECKING:
    from predict.rl.books import RlLedger
    from predict.rl.phases import Phase


LEAST = 0.005
"""Share of the step from which on a part has a line of its own."""
OTHER = "other parts"


ENTRY: Mapping[str, tuple[str, ...]] = {
    "moved": ("phase", "state"),
    "exposed": ("heading", "phase"),
    "terms": ("name",),
    "phases": ("name",),
}
"""List of a book → the keys that name an entry."""
BOOKS = ("account_us", "phases", "memory", "communication", "schedule", "calibration")


def rl_ledger_text(ledger: RlLedger) -> Renderable:
    """The account of each lane, MFU by convention, then book by book."""
    step = ledger.step
    return text.stacked(
        *text.first_lines_of(step.actor),
        text.head(step.rl.name, f"{step.rl.section.algorithm}, {step.rl.section.placement}"),
        "",
        text.step_fact(step.time),
        text.fact(
            "tokens",
            f"{step.rl.samples.tokens:,} per step, {count(step.tokens_per_second_per_gpu)} per second and GPU",
        ),
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


def _accounts(ledger: RlLedger) -> Iterator[Renderable]:
    """A table for each lane: its phases, which add up to the step, and below each its parts."""
    step_us = ledger.step.time.median_us
    for lane, account in ledger.accounts_us.items():
        rows: list[tuple[str, float]] = []
        for name, time_us in account.items():
            parts = _parts(ledger.step.phase(name), LEAST * step_us)
            rows += [(name, time_us), *((f"    {heading}", part_us) for heading, part_us in parts.items())]
        yield text.account_table(f"  the step on {lane}", rows, step_us)
        yield ""


def _parts(phase: Phase | None, least_us: float) -> dict[str, float]:
    """The parts of a phase that take as long at least, the longest first, and the others together; none of a phase of one part."""
    parts = phase.parts if phase else {}
    long = {heading: time_us for heading, time_us in parts.items() if time_us >= least_us}
    other_us = sum(parts.values()) - sum(long.values())
    shown = dict(sorted(long.items(), key=lambda part: -part[1])) | ({OTHER: other_us} if other_us > NOTHING_US else {})
    return shown if len(shown) > 1 else {}


def _mfu(ledger: RlLedger) -> Table:
    conventions = list(dict.fromkeys(name for phase in ledger.step.phases for name in phase.mfu))
    columns = [column for name in conventions for column in (f"FLOPs, {name}", f"MFU, {name}")]
    made = text.figures_table(
        "  MFU by convention; a pass counts a third, and time of the driver is left out", ("",), columns
    )
    for phase in ledger.step.phases:
        if phase.mfu:
            figures = [phase.mfu[name] for name in conventions]
            flops = ["refused" if one.flops is None else quantity(one.flops) for one in figures]
            mfu = ["" if one.mfu is None else percent(one.mfu) for one in figures]
            made.add_row(phase.name, *(cell for pair in zip(flops, mfu, strict=True) for cell in pair))
    return made


def _communication(ledger: RlLedger) -> list[Renderable]:
    waits = text.table(
        "  communication that the phases wait for",
        ledger.communication_us.items(),
        {"": lambda item: item[0][0], "phase": lambda item: item[0][1]},
        {
            "time": lambda item: duration(item[1]),
            "of step": lambda item: percent(item[1] / ledger.step.time.median_us),
        },
    )
    weights = text.fact(
        "weights",
        f"{quantity(ledger.weights_bytes)}B in {ledger.weight_tensors:,} tensors, by {ledger.step.rl.section.weight_sync.method}",
    )
    return [waits, weights] if ledger.communication_us else [weights]


def _schedule(ledger: RlLedger) -> Iterator[str]:
    step, section, run = ledger.step, ledger.step.rl.section, ledger.step.actor.run
    queue = step.queue
    steps, epochs = counted(section.optimizer_steps, "optimizer step"), counted(section.epochs, "epoch")
    yield "[bold]  schedule[/]"
    yield text.fact("samples", f"{section.prompts:,} prompts × {section.n}; {steps} in {epochs}")
    yield text.fact(
        "update",
        f"{counted(run.microbatches, 'microbatch')} of {run.batch.micro} × {run.batch.seq_len:,} tokens on each replica, padding "
        f"{section.padding}",
    )
    yield text.fact("engines", f"{step.rollout.replicas:,}; {tail_in_words(step)}")
    for lane, account in ledger.accounts_us.items():
        if WAITING in account:
            yield text.fact("waiting", f"{lane}: {duration(account[WAITING])}")
    if len(ledger.accounts_us) > 1:
        yield text.fact(
            "queue",
            f"{significant(queue.generating)} steps of samples in the engines, {significant(queue.waiting)} waiting, {significant(queue.staleness)} updates old "
            "when trained on",
        )


def _calibration(ledger: RlLedger) -> Iterator[Renderable]:
    yield "[bold]  calibration[/]"
    yield text.fact("rests on", rests_on(ledger.step))
    if factors := ledger.factors:
        yield text.fact(
            "factors",
            f"{plain(factors.rollout)} on generation, {plain(factors.update)} on updates, {plain(factors.passes)} on passes without a backward",
        )
    if ledger.terms:
        rows = ((name, term.value, term.low, term.high, term.meaning) for name, term in ledger.terms.items())
        yield constants_table("  priors", rows, about="what it is")
    if unknown := ledger.step.rl.section.unknown:
        yield text.fact("unknown", f"{text.escape(', '.join(unknown))}: a guess here")
    yield "  one optimizer step of the actor has five books of its own: --json"


def rl_ledger_json(ledger: RlLedger) -> dict[str, Any]:
    """All books in plain values."""
    step, section = ledger.step, ledger.step.rl.section
    return versioned(
        "rl-ledger",
        picked(step, "run=rl.name step_time_us=time")
        | {
            "account_us": ledger.accounts_us,
            "phases": [picked(phase, f"name {PHASE}") for phase in step.phases],
            "memory": rl_memory_json(step.memory),
            "communication": {
                "exposed": [
                    {"heading": heading, "phase": phase, "us": time_us}
                    for (heading, phase), time_us in ledger.communication_us.items()
                ],
                **picked(ledger, "weights_bytes weight_tensors"),
            },
            "schedule": picked(section, "prompts n optimizer_steps epochs")
            | picked(
                step,
                """microbatches=actor.run.microbatches row_tokens=actor.run.batch.seq_len bubble_fraction=actor.bubble_fraction
                tail_share=rollout.tail_share wait_gen_us idle_gen_us queue""",
            ),
            "calibration": picked(ledger, "shares=sources by_source_us by_class_us factors")
            | {
                "terms": [{"name": name, **as_json(term)} for name, term in ledger.terms.items()],
                "unknown": section.unknown,
            },
            "optimizer_step": ledger.optimizer_step and ledger_json(ledger.optimizer_step),
        },
    )


def rl_ledger_rows(ledger: RlLedger) -> list[dict[str, Any]]:
    """The numbers of all books, in the order of the JSON and under its names."""
    return rows_of_books(rl_ledger_json(ledger), BOOKS, ENTRY)
