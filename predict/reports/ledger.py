"""The ledger of a step as text, JSON and long table: the account of the step, MFU by convention, then book by book.

Times are µs of one GPU of the mean pipeline rank, sizes bytes, FLOPs those of all GPUs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from predict.ledger.books import CalibrationBook, Ledger
from predict.ledger.communication import CommunicationBook
from predict.ledger.compute import ComputeBook, OperatorTime, PartOfStep
from predict.ledger.peak_shares import PeakShare
from predict.ledger.schedule import ScheduleBook
from predict.memory.estimate import MemoryEstimate
from predict.reports import text
from predict.reports.memory import memory_json, summary
from predict.reports.printed import Renderable, Table
from predict.serialise import as_json, each_picked, picked, versioned
from predict.workload.layer import ACCUMULATION, FUSED_SHARE
from sampling.files.faults import counted
from sampling.number_text import count, duration, gib, percent, plain, quantity, significant, size

MOST_MESSAGES = 16
MOST_OPERATORS = 14
NOTHING = 1e-9
"""Share of the step below which a sum of floats is nothing."""
SHOWN_FIELDS = ("m", "n", "k", "batch", "seq_len", "heads", "tokens", "hidden", "width", "groups", "rows", "parameters")
ENTRY: Mapping[str, tuple[str, ...]] = {
    "parts": ("part", "layer"),
    "operators": ("heading", "operator", "phase", "recompute", "fields"),
    "peak_shares": ("heading", "dtype"),
    "messages": ("heading", "kind", "group", "carries", "size_bytes", "ranks"),
    "ranks": ("rank",),
    "layers": ("unit", "recompute"),
    "buffers": ("name",),
    "constants": ("name",),
}
"""List of a book → the keys that name an entry; its other numbers are a row each."""
BOOKS = ("account_us", "compute", "memory", "communication", "schedule", "calibration", "mfu", "parameters")
COLUMNS = ("run", "book", "entry", "quantity", "value")


def ledger_text(ledger: Ledger) -> Renderable:
    """The account of the step, MFU by convention, then book by book."""
    prediction = ledger.prediction
    step_us, run = prediction.median_us, prediction.run
    account = [
        (name.replace("_", " "), time_us)
        for name, time_us in ledger.account_us.items()
        if abs(time_us) > NOTHING * step_us
    ]
    return text.stacked(
        *text.first_lines_of(prediction),
        text.head(run.name, text.run_text(run)),
        "",
        text.step_fact(prediction.step_time),
        text.fact("parameters", _parameters(ledger)),
        text.fact("tokens", f"{ledger.compute.tokens:,} per step, {count(prediction.tokens_per_second)} per second"),
        "",
        text.account_table("  the step on the mean pipeline rank", account, step_us),
        "",
        _mfu(ledger),
        *(f"  {name}: {text.escape(one.refusal)}" for name, one in ledger.mfu.items() if one.refusal),
        "",
        _parts(ledger.compute),
        "",
        *_operators(ledger.compute, step_us, run.plan.pp),
        *_accumulation(ledger),
        "",
        *_peak_shares(ledger.peak_shares),
        *_memory(ledger.memory),
        "",
        *_communication(ledger.communication, step_us, run.plan.pp),
        "",
        *_schedule(ledger.schedule),
        "",
        *_calibration(ledger.calibration),
    )


def _parameters(ledger: Ledger) -> str:
    """`8.292B, of which a token meets 7.616B · vision tower 676.6M · trained 7.616B`."""
    held, model = ledger.parameters, ledger.prediction.run.model
    shown = {name: quantity(many).replace("G", "B") for name, many in held.items()}
    tower = "encoder" if model.is_encoder_decoder else "vision tower"
    unheld = 0 if held["tower"] else model.parameters_with_tower - model.parameters
    parts = {
        f"{tower} {shown['tower']}": held["tower"],
        f"{tower} of {quantity(unheld)} not held, as vision.images is 0": unheld,
        f"trained {shown['trained']}": held["trained"] < held["total"],
    }
    return " · ".join(
        [
            f"{shown['total']}, of which a token meets {shown['active']}",
            *(part for part, stated in parts.items() if stated),
        ]
    )


def _mfu(ledger: Ledger) -> Table:
    return text.table(
        "  MFU by convention",
        ledger.mfu.items(),
        {"": lambda item: item[0]},
        {
            "MFU": lambda item: "refused" if item[1].mfu is None else percent(item[1].mfu),
            "FLOPs per step": lambda item: "" if item[1].flops is None else quantity(item[1].flops),
            "FLOPs per token": lambda item: (
                "" if item[1].flops is None else quantity(item[1].flops / ledger.compute.tokens)
            ),
            "peak per GPU": lambda item: (
                ""
                if item[1].peak_flops_per_us is None
                else f"{plain(item[1].peak_flops_per_us / ledger.compute.gpus / 1e6)} TFLOP/s"
            ),
        },
    )


def _parts(book: ComputeBook) -> Table:
    """Required FLOPs by part of the model."""
    made = text.table(
        "  required FLOPs by part",
        book.parts,
        {
            "": lambda part: part.part.replace("_", " "),
            "layers": lambda part: f"{part.layers} {part.layer}" if part.layer else "",
        },
        {
            "forward": lambda part: quantity(part.forward_flops),
            "backward": lambda part: quantity(part.backward_flops),
            "share": lambda part: percent(part.required_flops / book.required_flops),
            "per token": lambda part: quantity(part.required_flops / book.tokens),
            "per GPU": lambda part: quantity(part.required_flops / book.gpus),
            "recompute": lambda part: quantity(part.recompute_flops) if part.recompute_flops else "",
        },
    )
    made.add_row(
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
        made.add_row("optimizer, in addition", "", quantity(book.optimizer_flops))
    return made


def _operators(book: ComputeBook, step_us: float, pp: int) -> list[Renderable]:
    """The operators by the time above their bound, most first: where the headroom is."""
    wasteful = sorted(book.operators, key=lambda each: (each.bound_us or 0.0) - each.total_us)
    shown, more = wasteful[:MOST_OPERATORS], len(wasteful) - MOST_OPERATORS
    rest = f"; {more} more in --json" if more > 0 else ""
    made = text.table(
        f"  operators per GPU and step, most time above the bound first{rest}",
        shown,
        {
            "": lambda each: each.heading,
            "phase": lambda each: ("recompute" if each.again else each.phase or "").replace("_", " "),
            "shape": _shape,
        },
        {
            "count": lambda each: plain(each.count) if each.call else "",
            "each": lambda each: duration(each.each_us) if each.call else "",
            "in all": lambda each: duration(each.total_us),
            "of the step": lambda each: percent(each.total_us / step_us),
            "÷ bound": lambda each: "" if each.over_bound is None else significant(each.over_bound),
        },
    )
    remarks = text.uneven_counts((each.count for each in shown if each.call), pp)
    return [made, *(f"  {each}" for each in remarks)]


def _accumulation(ledger: Ledger) -> list[str]:
    """A remark on gradients that are added up in the products of the weights, which no pass of its own reads."""
    run = ledger.prediction.run
    in_products = run.execution.fuse_gradients and run.plan.zero < 2
    if not (in_products and any(each.heading == ACCUMULATION for each in ledger.compute.operators)):
        return []
    return [
        f"  {ACCUMULATION}: the weights' products add to the gradients of earlier microbatches themselves; counted is what they take longer, "
        f"{plain(FUSED_SHARE)} of the traffic, and all of that of experts"
    ]


def _peak_shares(shares: Sequence[PeakShare]) -> list[Renderable]:
    """The share of the peak that kernels are given, and what shapes, starts and the clocks of a long run leave of it."""
    if not shares:
        return []
    made = text.table(
        "  share of the peak: stated for the largest calls, over the time of a long run, and reached with these shapes",
        shares,
        {"": lambda each: each.heading, "dtype": lambda each: each.dtype},
        {
            "stated": lambda each: "" if each.stated is None else percent(each.stated),
            "long run": lambda each: f"÷ {plain(each.clocks)}",
            "reached": lambda each: percent(each.reached),
            "backward": lambda each: "" if each.backward is None else f"{significant(each.backward)} × forward",
        },
        {"kernel": lambda each: each.kernel},
    )
    return [made, ""]


def _shape(operator: OperatorTime) -> str:
    if operator.call is None:
        return ""
    fields = operator.call.fields()
    return " ".join(f"{name}={fields[name]:,}" for name in SHOWN_FIELDS if fields.get(name))


def _memory(estimate: MemoryEstimate) -> list[Renderable]:
    title = f"  memory, peak of pipeline rank {estimate.worst.rank}"
    terms = text.account_table(title, estimate.worst.terms.items(), estimate.point_bytes, unit="GiB", write=gib)
    return [terms, f"  {summary(estimate)}"]


def _communication(book: CommunicationBook, step_us: float, pp: int) -> list[Renderable]:
    if not book.messages:
        return ["[bold]  communication[/]: none"]
    shown = book.messages[:MOST_MESSAGES]
    made = text.table(
        "  communication per GPU and step; alone less exposed is hidden",
        shown,
        {
            "": lambda each: each.heading,
            "message": lambda each: each.kind,
            "group": lambda each: f"{each.group} × {each.ranks}",
            "carries": lambda each: each.carries,
            "algorithm": lambda each: each.algorithm,
        },
        {
            "MB": lambda each: plain(each.size_bytes / 1e6),
            "count": lambda each: plain(each.count),
            "each": lambda each: duration(each.each_us),
            "alone": lambda each: duration(each.total_us),
            "exposed": lambda each: duration(each.exposed_us),
            "of step": lambda each: percent(each.exposed_us / step_us),
        },
    )
    totals = (duration(book.total_us), duration(book.exposed_us), percent(book.exposed_us / step_us))
    made.add_row("in all", *[""] * 7, *totals)
    more = len(book.messages) - MOST_MESSAGES
    further = [f"  and {counted(more, 'more kind')} of message: --json has them"] if more > 0 else []
    remarks = text.uneven_counts((each.count for each in shown), pp)
    return [made, *further, *(f"  {each}" for each in remarks)]


def _schedule(book: ScheduleBook) -> list[Renderable]:
    ranks = text.table(
        "",
        book.ranks,
        {},
        {
            "rank": lambda rank: str(rank.rank),
            "busy": lambda rank: duration(rank.busy_us),
            "fill": lambda rank: duration(rank.fill_us),
            "queue": lambda rank: duration(rank.queue_us),
            "step end": lambda rank: duration(rank.end_us),
            "drain": lambda rank: duration(rank.drain_us),
            "idle": lambda rank: duration(rank.idle_us),
        },
    )
    rows = counted(book.global_batch, "sequence" if book.padding is None else "row")
    microbatches = f"{counted(book.microbatches, 'microbatch')} of {book.micro_batch} × {book.row_tokens:,} tokens"
    title = f"[bold]  schedule {book.schedule}[/]: {rows} per step, {microbatches} on each replica"
    return [title, *_padding(book), ranks]


def _padding(book: ScheduleBook) -> list[str]:
    waste = book.padding
    if waste is None:
        return []
    cut = f" ({waste.truncated:,} cut to the longest row)" if waste.truncated else ""
    return [
        text.fact(
            "padding",
            f"{waste.padding}: {counted(waste.sequences, 'sequence')} of {waste.lengths}{cut}, {waste.tokens:,} tokens in rows of "
            f"{waste.computed_tokens:,}",
        ),
        text.fact(
            "wasted",
            f"{percent(waste.token_waste)} of the tokens, {percent(waste.attention_waste)} of attention's squares, "
            f"{duration(waste.wasted_us)} of the step, {size(waste.wasted_bytes)} of activations",
        ),
    ]


def _calibration(book: CalibrationBook) -> list[Renderable]:
    rests = " · ".join(f"{percent(share)} {source}" for source, share in book.shares.items() if share >= 0.0005)
    unknown = ((name, math.expm1(width)) for name, width in book.unknowns.items())
    lines: list[Renderable] = [
        "[bold]  calibration[/]",
        text.fact("rests on", rests + (f"; samples: {text.escape(book.samples)}" if book.samples else "")),
        text.fact(
            "unknown",
            " · ".join(f"{text.escape(name)} ±{percent(share)}" for name, share in unknown if share >= 0.0005),
        ),
    ]
    if not book.constants:
        return [*lines, text.fact("constants", "none read off published runs")]
    title = "  constants read off published runs that moved it"
    rows = ((name, one.value, one.low, one.high, one.moves) for name, one in book.constants.items())
    return [*lines, constants_table(title, rows, about="what it moves")]


def constants_table(title: str, rows: Iterable[tuple[str, float, float, float, str]], *, about: str) -> Table:
    """Constants by their names, each with its value, its bounds and a remark."""
    return text.table(
        title,
        rows,
        {"": lambda row: row[0]},
        {"value": lambda row: plain(row[1]), "bounds": lambda row: f"{plain(row[2])} to {plain(row[3])}"},
        {about: lambda row: row[4]},
    )


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    """All books in plain values."""
    compute, communication, schedule = ledger.compute, ledger.communication, ledger.schedule
    return versioned(
        "ledger",
        picked(ledger, "run=prediction.run.name step_time_us=prediction.step_time account_us")
        | {
            "compute": picked(compute, "tokens required_flops")
            | _required(compute.required_flops, compute)
            | picked(compute, "recompute_flops optimizer_flops")
            | {
                "parts": [_part(part, compute) for part in compute.parts],
                "operators": [_operator(operator) for operator in compute.operators],
                "peak_shares": each_picked(ledger.peak_shares, "*"),
                "total_us": compute.total_us,
            },
            "memory": _memory_json(ledger.memory),
            "communication": {
                "messages": each_picked(communication.messages, "* each_us hidden_us"),
                **picked(communication, "total_us exposed_us hidden_us"),
                "exposed_by_heading_us": communication.exposed_by_heading_us(),
            },
            "schedule": as_json(schedule)
            | {"ranks": each_picked(schedule.ranks, "* idle_us")}
            | picked(schedule, "idle_us bubble_us queue_us"),
            "calibration": _calibration_json(ledger.calibration),
            "mfu": {name: one.mfu for name, one in ledger.mfu.items()},
            "mfu_flops": {name: one.flops for name, one in ledger.mfu.items()},
            "mfu_peak_flops_per_us": {name: one.peak_flops_per_us for name, one in ledger.mfu.items()},
            "mfu_refusals": {name: one.refusal for name, one in ledger.mfu.items() if one.refusal},
            "parameters": ledger.parameters,
        },
    )


def _required(flops: float, book: ComputeBook) -> dict[str, float]:
    return {"required_flops_per_token": flops / book.tokens, "required_flops_per_gpu": flops / book.gpus}


def _part(part: PartOfStep, book: ComputeBook) -> dict[str, Any]:
    return picked(part, "* required_flops") | _required(part.required_flops, book)


def _operator(operator: OperatorTime) -> dict[str, Any]:
    call = operator.call
    return (
        {"heading": operator.heading, "operator": call and call.NAME, "fields": call.fields() if call else {}}
        | picked(operator, "phase recompute=again source count each_us total_us flops bound_us over_bound")
    )  # fmt: skip


def _memory_json(estimate: MemoryEstimate) -> dict[str, Any]:
    content = memory_json(estimate)
    for key in ("version", "run", "schedule", "advice"):  # the ledger's own, or not of its business
        del content[key]
    return {"terms": estimate.worst.terms, **content}


def _calibration_json(book: CalibrationBook) -> dict[str, Any]:
    constants = [{"name": name, **as_json(constant)} for name, constant in book.constants.items()]
    return (
        picked(book, "shares by_source_us unknowns_log=unknowns")
        | {"constants": constants}
        | picked(book, "samples calibrated")
    )


def ledger_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """The numbers of all books, in the order of the JSON and under its names."""
    return rows_of_books(ledger_json(ledger), BOOKS, ENTRY)


def rows_of_books(
    content: Mapping[str, Any], books: Sequence[str], entries: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """A row for every number of the books of a JSON; `entries` are the keys that name the entries of a book's lists."""
    named = {book: content[book] if isinstance(content[book], Mapping) else {book: content[book]} for book in books}
    return [
        {"run": content["run"], "book": book, "entry": entry, "quantity": quantity, "value": value}
        for book, numbers in named.items()
        for entry, quantity, value in _numbers(numbers, entries)
    ]


def _numbers(content: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, float]]:
    """Entry, quantity and value of every number of a book; `names` are the keys that name the entries of its lists."""
    for key, value in content.items():
        if isinstance(value, list):
            for each in value:
                if not isinstance(each, Mapping):
                    continue  # a word
                named = [_named(name, each[name]) for name in names[key]]
                rest = {name: inner for name, inner in each.items() if name not in names[key]}
                entry = " ".join([key, *filter(None, named)])
                yield from ((entry, quantity, number) for quantity, number in _flat(rest))
        else:
            yield from (("", quantity, number) for quantity, number in _flat({key: value}))


def _named(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={inner}" for name, inner in value.items() if inner not in (False, 0, ""))
    if isinstance(value, bool):
        return key if value else ""
    return f"{key}={value}" if isinstance(value, int | float) else str(value or "")


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of nested mappings, under their keys joined by points."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", number) for inner, number in _flat(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value
