"""The ledger for a reader in a terminal: the account of the step, MFU by convention, then book by book."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from predict.ledger.books import CalibrationBook, Ledger
from predict.ledger.communication import CommunicationBook
from predict.ledger.compute import ComputeBook, OperatorTime
from predict.ledger.schedule import ScheduleBook
from predict.report.memory import summary
from predict.report.provenance import first_lines_of
from predict.report.text import figures_table, run_text
from sampling.files.faults import counted
from sampling.number_text import bar, duration, durations, percent, plain, significant
from sampling.units import GIB

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


MOST_MESSAGES = 16
NOTHING = 1e-9
"""Share of the step below which a sum of floats is nothing."""


def ledger_text(ledger: Ledger) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    prediction = ledger.prediction
    step, run = prediction.step_time, prediction.run
    return Group(
        *first_lines_of(prediction),
        f"[bold]{escape(run.name)}[/]  {escape(run_text(run))}",
        "",
        f"  step time   [bold]{duration(step.median_us)}[/]   (90 %: {durations(step.low_us, step.high_us)})",
        f"  parameters  {_billions(ledger.parameters['total'])}, of which a token meets {_billions(ledger.parameters['active'])}",
        f"  tokens      {ledger.compute.tokens:,} per step, {prediction.tokens_per_second:,.0f} per second",
        "",
        _account(ledger),
        "",
        _mfu(ledger),
        *_refusals(ledger),
        "",
        parts_table(ledger.compute),
        "",
        operators_table(ledger.compute, prediction.median_us),
        "",
        *_memory(ledger),
        "",
        *_communication(ledger.communication, prediction.median_us),
        "",
        *_schedule(ledger.schedule),
        "",
        *_calibration(ledger.calibration),
    )


def _billions(parameters: int) -> str:
    """A number of parameters as people write it: 70.6B."""
    return quantity(parameters).replace("G", "B")


def _account(ledger: Ledger) -> Table:
    step_us = ledger.prediction.median_us
    table = figures_table("  the step on the mean pipeline rank", ("",), ("time", "share"))
    table.add_column("")
    for name, time_us in ledger.account_us.items():
        if abs(time_us) > NOTHING * step_us:
            share = time_us / step_us
            table.add_row(name.replace("_", " "), duration(time_us), percent(share), bar(share))
    return table


def _mfu(ledger: Ledger) -> Table:
    table = figures_table("  MFU by convention", ("",), ("MFU", "FLOPs per step", "FLOPs per token", "peak per GPU"))
    for name, one in ledger.mfu.items():
        table.add_row(
            name,
            "refused" if one.mfu is None else f"{one.mfu:.1%}",
            "" if one.flops is None else quantity(one.flops),
            "" if one.flops is None else quantity(one.flops / ledger.compute.tokens),
            ""
            if one.peak_flops_per_us is None
            else f"{one.peak_flops_per_us / ledger.compute.gpus / 1e6:,.4g} TFLOP/s",
        )
    return table


def _refusals(ledger: Ledger) -> list[str]:
    from rich.markup import escape

    return [f"  {name}: {escape(one.refusal)}" for name, one in ledger.mfu.items() if one.refusal]


def _memory(ledger: Ledger) -> list[RenderableType]:
    estimate = ledger.memory.estimate
    table = figures_table(f"  memory, peak of pipeline rank {estimate.worst.rank}", ("",), ("GiB", "share"))
    table.add_column("")
    for term, size in ledger.memory.terms_bytes.items():
        share = size / estimate.point_bytes
        table.add_row(term, f"{size / GIB:,.2f}", percent(share), bar(share))
    return [table, f"  {summary(estimate)}"]


def _communication(book: CommunicationBook, step_us: float) -> list[RenderableType]:
    if not book.messages:
        return ["[bold]  communication[/]: none"]
    table = figures_table(
        "  communication per GPU and step; alone less exposed is hidden",
        ("", "message", "group", "carries", "algorithm"),
        ("MB", "count", "each", "alone", "exposed", "of step"),
    )
    for each in book.messages[:MOST_MESSAGES]:
        table.add_row(
            each.heading,
            each.kind,
            f"{each.group} × {each.ranks}",
            each.carries,
            each.algorithm,
            plain(each.size_bytes / 1e6),
            f"{each.count:,.4g}",
            *map(duration, (each.each_us, each.total_us, each.exposed_us)),
            percent(each.exposed_us / step_us),
        )
    table.add_row(
        "in all",
        *[""] * 7,
        *map(duration, (book.total_us, book.exposed_us)),
        percent(book.exposed_us / step_us),
    )
    more = len(book.messages) - MOST_MESSAGES
    return [table, *([f"  and {counted(more, 'more kind')} of message: --json has them"] if more > 0 else [])]


def _schedule(book: ScheduleBook) -> list[RenderableType]:
    table = figures_table(
        "",
        (),
        ("rank", "busy", "fill", "queue", "step end", "drain", "idle"),
    )
    for rank in book.ranks:
        times = (rank.busy_us, rank.fill_us, rank.queue_us, rank.end_us, rank.drain_us, rank.idle_us)
        table.add_row(str(rank.rank), *map(duration, times))
    rows = counted(book.global_batch, "sequence" if book.padding is None else "row")
    microbatches = f"{counted(book.microbatches, 'microbatch')} of {book.micro_batch} × {book.row_tokens:,} tokens"
    title = f"[bold]  schedule {book.schedule}[/]: {rows} per step, {microbatches} on each replica"
    return [title, *_padding(book), table]


def _padding(book: ScheduleBook) -> list[RenderableType]:
    waste = book.padding
    if waste is None:
        return []
    cut = f" ({waste.truncated:,} cut to the longest row)" if waste.truncated else ""
    return [
        f"  padding    {waste.padding}: {waste.sequences:,} sequences of {waste.lengths}{cut}, {waste.tokens:,} tokens in rows of "
        f"{waste.computed_tokens:,}",
        f"  wasted     {percent(waste.token_waste)} of the tokens, {percent(waste.attention_waste)} of attention's squares, "
        f"{duration(waste.wasted_us)} of the step, {waste.wasted_bytes / GIB:.2f} GiB of activations",
    ]


def _calibration(book: CalibrationBook) -> list[RenderableType]:
    from rich.markup import escape

    rests = " · ".join(f"{share:.1%} {source}" for source, share in book.shares.items() if share >= 0.0005)
    unknown = ((name, math.expm1(width)) for name, width in book.unknowns.items())
    lines: list[RenderableType] = [
        "[bold]  calibration[/]",
        f"  rests on   {rests}" + (f"; samples: {escape(book.samples)}" if book.samples else ""),
        f"  unknown    {' · '.join(f'{escape(name)} ±{share:.1%}' for name, share in unknown if share >= 0.0005)}",
    ]
    if not book.constants:
        return [*lines, "  constants  none read off published runs"]
    table = figures_table("  constants read off published runs that moved it", ("",), ("value", "bounds"))
    table.add_column("what it moves")
    for name, one in book.constants.items():
        table.add_row(name, f"{one.value:g}", f"{one.low:g} to {one.high:g}", escape(one.moves))
    return [*lines, table]


MOST_OPERATORS = 14
STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SHOWN_FIELDS = ("m", "n", "k", "batch", "seq_len", "heads", "tokens", "hidden", "width", "groups", "rows", "parameters")


def quantity(value: float) -> str:
    """A count of four digits with a prefix: 8.030G."""
    for size, prefix in STEPS:
        if abs(value) >= size:
            return f"{significant(value / size, 4)}{prefix}"
    return significant(value, 4)


def parts_table(book: ComputeBook) -> Table:
    table = figures_table(
        "  required FLOPs by part",
        ("", "layers"),
        ("forward", "backward", "share", "per token", "per GPU", "recompute"),
    )
    for part in book.parts:
        table.add_row(
            part.part.replace("_", " "),
            f"{part.layers} {part.layer}" if part.layer else "",
            *map(quantity, (part.forward_flops, part.backward_flops)),
            percent(part.required_flops / book.required_flops),
            quantity(part.required_flops / book.tokens),
            quantity(part.required_flops / book.gpus),
            quantity(part.recompute_flops) if part.recompute_flops else "",
        )
    table.add_row(
        "in all",
        "",
        quantity(sum(part.forward_flops for part in book.parts)),
        quantity(sum(part.backward_flops for part in book.parts)),
        "",
        quantity(book.required_flops / book.tokens),
        quantity(book.required_flops / book.gpus),
        quantity(book.recompute_flops) if book.recompute_flops else "",
    )
    if book.optimizer_flops:
        table.add_row("optimizer, beside these", "", quantity(book.optimizer_flops))
    return table


def operators_table(book: ComputeBook, step_us: float) -> Table:
    """The operators by the time above their bound, most first: where the headroom is."""
    wasteful = sorted(book.operators, key=lambda each: (each.bound_us or 0.0) - each.total_us)
    shown = wasteful[:MOST_OPERATORS]
    more = len(wasteful) - len(shown)
    rest = f"; {more} more in --json" if more else ""
    table = figures_table(
        f"  operators per GPU and step, most time above the bound first{rest}",
        ("", "phase", "shape"),
        ("count", "each", "in all", "of the step", "÷ bound"),
    )
    for each in shown:
        table.add_row(
            each.heading,
            ("recompute" if each.again else each.phase or "").replace("_", " "),
            _shape(each),
            f"{each.count:,.4g}" if each.call else "",
            duration(each.each_us) if each.call else "",
            duration(each.total_us),
            percent(each.total_us / step_us),
            "" if each.over_bound is None else f"{each.over_bound:.2f}",
        )
    return table


def _shape(operator: OperatorTime) -> str:
    if operator.call is None:
        return ""
    fields = operator.call.fields()
    return " ".join(f"{name} {fields[name]:,}" for name in SHOWN_FIELDS if fields.get(name))
