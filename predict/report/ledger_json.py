"""The JSON of a ledger and its long table: times in µs of one GPU of the mean pipeline rank, sizes in bytes, FLOPs of all GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from predict.ledger.books import CalibrationBook, Ledger, MemoryBook
from predict.ledger.communication import CommunicationBook, MessageTime
from predict.ledger.compute import ComputeBook, OperatorTime, PartOfStep
from predict.ledger.schedule import ScheduleBook
from predict.report.memory import memory_json
from predict.report.prediction import interval_json

VERSION = 1


def ledger_json(ledger: Ledger) -> dict[str, Any]:
    return {
        "version": VERSION,
        "run": ledger.prediction.run.name,
        "step_time_us": interval_json(ledger.prediction.step_time),
        "account_us": ledger.account_us,
        "compute": _compute(ledger.compute),
        "memory": _memory(ledger.memory),
        "communication": _communication(ledger.communication),
        "schedule": _schedule(ledger.schedule),
        "calibration": _calibration(ledger.calibration),
        "mfu": {name: one.mfu for name, one in ledger.mfu.items()},
        "mfu_flops": {name: one.flops for name, one in ledger.mfu.items()},
        "mfu_peak_flops_per_us": {name: one.peak_flops_per_us for name, one in ledger.mfu.items()},
        "mfu_refusals": {name: one.refusal for name, one in ledger.mfu.items() if one.refusal},
        "parameters": ledger.parameters,
    }


def _compute(book: ComputeBook) -> dict[str, Any]:
    return {
        "tokens": book.tokens,
        "required_flops": book.required_flops,
        "required_flops_per_token": book.required_flops / book.tokens,
        "required_flops_per_gpu": book.required_flops / book.gpus,
        "recompute_flops": book.recompute_flops,
        "optimizer_flops": book.optimizer_flops,
        "parts": [_part(part, book) for part in book.parts],
        "operators": [_operator(operator) for operator in book.operators],
        "total_us": book.total_us,
    }


def _part(part: PartOfStep, book: ComputeBook) -> dict[str, Any]:
    return {
        **asdict(part),
        "required_flops": part.required_flops,
        "required_flops_per_token": part.required_flops / book.tokens,
        "required_flops_per_gpu": part.required_flops / book.gpus,
    }


def _operator(operator: OperatorTime) -> dict[str, Any]:
    return {
        "heading": operator.heading,
        "operator": operator.call.NAME if operator.call else None,
        "fields": operator.call.fields() if operator.call else {},
        "phase": operator.phase,
        "recompute": operator.again,
        "source": operator.source,
        "count": operator.count,
        "each_us": operator.each_us,
        "total_us": operator.total_us,
        "flops": operator.flops,
        "bound_us": operator.bound_us,
        "over_bound": operator.over_bound,
    }


def _memory(book: MemoryBook) -> dict[str, Any]:
    content = memory_json(book.estimate)
    for key in ("version", "run", "schedule", "advice"):  # the ledger's own, or not of its business
        del content[key]
    return {"terms": book.terms_bytes, **content}


def _communication(book: CommunicationBook) -> dict[str, Any]:
    return {
        "messages": [_message(message) for message in book.messages],
        "total_us": book.total_us,
        "exposed_us": book.exposed_us,
        "hidden_us": book.hidden_us,
        "exposed_by_heading_us": book.exposed_by_heading_us(),
    }


def _message(message: MessageTime) -> dict[str, Any]:
    return {**asdict(message), "each_us": message.each_us, "hidden_us": message.hidden_us}


def _schedule(book: ScheduleBook) -> dict[str, Any]:
    return {
        **asdict(book),
        "ranks": [{**asdict(rank), "idle_us": rank.idle_us} for rank in book.ranks],
        "idle_us": book.idle_us,
        "bubble_us": book.bubble_us,
        "queue_us": book.queue_us,
    }


def _calibration(book: CalibrationBook) -> dict[str, Any]:
    return {
        "shares": book.shares,
        "by_source_us": dict(book.by_source_us),
        "unknowns_log": dict(book.unknowns),
        "constants": [{"name": name, **asdict(constant)} for name, constant in book.constants.items()],
        "samples": book.samples,
        "calibrated": dict(book.calibrated),
    }


COLUMNS = ("run", "book", "entry", "quantity", "value")
ENTRY: Mapping[str, tuple[str, ...]] = {
    "parts": ("part", "layer"),
    "operators": ("heading", "operator", "phase", "recompute", "fields"),
    "messages": ("heading", "kind", "group", "carries", "size_bytes", "ranks"),
    "ranks": ("rank",),
    "layers": ("unit", "recompute"),
    "buffers": ("name",),
    "constants": ("name",),
}
"""List of a book → the keys that name an entry; its other numbers are a row each."""
BOOKS = ("account_us", "compute", "memory", "communication", "schedule", "calibration", "mfu", "parameters")


def ledger_rows(ledger: Ledger) -> list[dict[str, Any]]:
    """The numbers of all books, in the order of the JSON and under its names."""
    content = ledger_json(ledger)
    return [
        {"run": content["run"], "book": book, "entry": entry, "quantity": quantity, "value": value}
        for book in BOOKS
        for entry, quantity, value in numbers(content[book], ENTRY)
    ]


def numbers(content: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, float]]:
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
