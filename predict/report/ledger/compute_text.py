"""The compute book in a terminal: FLOPs by part, and operators by the time that they take above the least possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from predict.ledger.compute import ComputeBook, OperatorTime
from predict.report.tables import figures_table
from sampling.number_text import duration, percent, significant

if TYPE_CHECKING:
    from rich.table import Table

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
