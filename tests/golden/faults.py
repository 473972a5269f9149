"""What is said of wrong configs, models and files: one message for each row of the tests' tables of faults."""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from predict import UserError, load
from predict.bounds.device import device_of
from predict.huggingface.config_json import load_model
from predict.rl.config import load_rl
from predict.serving.config import load_serving
from predict.serving.fit_own_server import EngineStep
from predict.serving.requests import read_measured_requests, read_requests, read_rows
from predict.serving.speculation import Speculation, from_log
from tests.predict.config import fault_rows, rule_rows
from tests.predict.huggingface.family_configs import TINY, WRONG
from tests.predict.workload.parallel_runs import made

WRONG_SETTINGS, WRONG_FILES = (
    Path(fault_rows.__file__).with_name(name) for name in ("wrong_settings.txt", "wrong_files.yml")
)
READERS: Mapping[str, Callable[[Path], object]] = {
    "requests": read_requests,
    "answers": read_measured_requests,
    "steps": lambda path: read_rows(path, EngineStep, each="step"),
    "devices": lambda path: device_of(str(path)),
    "drafts": lambda path: from_log(Speculation(kind="eagle", tokens=3, log=path.name), path.parent),
}
"""Who reads a file → how."""


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
    for line in WRONG_SETTINGS.read_text().splitlines():
        if not line.startswith("#"):
            yield line, lambda line=line: _load_over(*shlex.split(line))  # type: ignore[misc]
    for number, row in enumerate(yaml.safe_load(WRONG_FILES.read_text())):
        reader, name, text = READERS[row["reader"]], row["name"], row["text"]
        yield f"file {number} {row['reader']}", lambda reader=reader, name=name, text=text: _read(reader, name, text)  # type: ignore[misc]


def _load_over(config: str, *settings: str) -> object:
    return (load_rl if "rl" in Path(config).parts else load_serving)(config, settings)


def _load(text: str) -> object:
    return _read(load, "run.yml", text)


def _read(reader: Callable[[Path], object], name: str, text: str) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        try:
            return reader(path)
        except UserError as error:
            raise type(error)(str(error).replace(folder, "{out}")) from error


def _message(work: Callable[[], object]) -> str:
    try:
        work()
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    return "no fault"
