"""What is said of wrong configs and models: one message for each row of the tests' tables of faults."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from predict import UserError, load
from predict.huggingface.config_json import load_model
from tests.predict.config import fault_rows, rule_rows
from tests.predict.huggingface.family_configs import TINY, WRONG
from tests.predict.workload.parallel_runs import made


def fault_answers() -> dict[str, str]:
    """The row of a table → its message."""
    return {name: _message(work) for name, work in _rows()}


def _rows() -> Iterator[tuple[str, Callable[[], object]]]:
    for number, (text, path) in enumerate(fault_rows.ROWS):
        yield f"config {number} {path}", lambda text=text: _load(text)  # type: ignore[misc]
    for number, row in enumerate(rule_rows.ROWS):
        yield f"rule {number} {row.rule}", lambda row=row: made(row.model, **row.settings)  # type: ignore[misc]
    for number, (name, changes, path) in enumerate(WRONG):
        yield f"model {number} {path}", lambda config={**TINY[name], **changes}: load_model(config)  # type: ignore[misc]


def _load(text: str) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.yml"
        path.write_text(text)
        try:
            return load(path)
        except UserError as error:
            raise type(error)(str(error).replace(folder, "{out}")) from error


def _message(work: Callable[[], object]) -> str:
    try:
        work()
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    return "no fault"
