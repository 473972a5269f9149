"""The JSON of `predict ledger --json` for an RL config, and its numbers as a long table: times in µs, sizes in bytes.

`version` changes when the meaning of a key changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from predict.report.ledger.json import ledger_json
from predict.report.ledger.table import numbers
from predict.report.prediction_json import interval_json
from predict.report.rl.memory import rl_memory_json
from predict.report.rl.step import phase_json

if TYPE_CHECKING:
    from predict.rl.ledger.books import RlLedger

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
        "step_time_us": interval_json(step.time),
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
