"""Requests from a file: a CSV table, or JSON that a load generator wrote (request_json.py).

arrival_s,prompt,output[,prompt_id][,ttft_ms,e2e_ms]        seconds from any zero; equal prompt_id mean the same prompt
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from predict.serving.batch import Floats
from predict.serving.scheduler.request_json import rows_of_json
from predict.serving.scheduler.traffic import Traffic, shortest_of_each
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error
from sampling.files.keys import Key, keys_of
from sampling.files.regular import NotReadError, read_text
from sampling.files.schema import MOST_TOLD, build
from sampling.units import SECOND_US

Row = TypeVar("Row")
Request = TypeVar("Request", bound="FileRequest")
Milliseconds = Annotated[float, Key(maximum=1e9)]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRequest:
    """One request of a file."""

    arrival_s: Annotated[float, Key(minimum=0, maximum=1e12)]
    prompt: int
    """Tokens."""
    output: int
    """Tokens that are generated."""
    prompt_id: Annotated[str, Key()] = ""
    """Requests of the same one have the same prompt; blank for a prompt of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRequest(FileRequest):
    """A request with its times."""

    ttft_ms: Milliseconds
    """Up to the first token."""
    e2e_ms: Milliseconds
    """Up to the last token."""

    def contradictions(self) -> Sequence[Fault]:
        if self.e2e_ms >= self.ttft_ms:
            return []
        problem = f"{self.e2e_ms:g} is less than ttft_ms, {self.ttft_ms:g}; give the time up to the last token"
        return [Fault(path="e2e_ms", problem=problem)]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MeasuredRequests:
    """Requests that a real server answered, in order of arrival, with the times of each in µs."""

    traffic: Traffic
    ttft_us: Floats
    e2e_us: Floats

    @property
    def tpot_us(self) -> float:
        """The mean time per output token after the first, over the requests that have such tokens."""
        further = self.traffic.output - 1
        return float(((self.e2e_us - self.ttft_us)[further > 0] / further[further > 0]).mean())


def read_requests(path: Path) -> Traffic:
    """The requests of a file, in order of arrival and from the first one on. ConfigError lists the first faults of its rows."""
    return _traffic(_read(path, FileRequest))


def read_measured_requests(path: Path) -> MeasuredRequests:
    """The same with the times of the requests. ConfigError too where none has a token after the first."""
    placed = _read(path, MeasuredRequest)
    requests = [request for _, request in placed]
    if max(request.output for request in requests) < 2:
        problem = "no request has 2 tokens or more, so that none tells the time of a step"
        raise config_error([Fault(path="output", problem=problem)], {"": str(path)})
    ttft_ms, e2e_ms = (np.array([getattr(one, name) for one in requests]) for name in ("ttft_ms", "e2e_ms"))
    return MeasuredRequests(traffic=_traffic(placed), ttft_us=1e3 * ttft_ms, e2e_us=1e3 * e2e_ms)


def read_rows(path: Path, cls: type[Row], *, each: str) -> dict[int, Row]:
    """The rows of a CSV table, or the requests of a JSON file, by their place there, from 1, with the columns that `cls` declares; `each`
    names one of them in faults. ConfigError lists the first faults."""
    try:
        text = read_text(path)
    except NotReadError as error:
        raise ConfigError(f"{path}: {error}; give a file of {each}s") from None
    names = {key.name: key for key in keys_of(cls)}  # type: ignore[arg-type]
    rows = _from_json(path, text, names) if path.suffix.lower() == ".json" else _from_csv(path, text, names)
    found: dict[int, Row] = {}
    faults: list[Fault] = []
    for place, row in rows.items():
        made, wrong = build(cls, row, section=f"{each} {place}")
        faults += wrong
        if made:
            found[place] = made
        if len(faults) >= MOST_TOLD:
            break
    if faults or not found:
        raise config_error(faults or [Fault(path="", problem=f"holds no {each}s")], {"": str(path)})
    return found


def _read(path: Path, cls: type[Request]) -> list[tuple[int, Request]]:
    """The requests in order of arrival, each with its place in the file."""
    return sorted(read_rows(path, cls, each="request").items(), key=lambda placed: placed[1].arrival_s)


def _traffic(placed: Sequence[tuple[int, FileRequest]]) -> Traffic:
    requests = [request for _, request in placed]
    prompt = np.array([request.prompt for request in requests])
    identities = {name: place for place, name in enumerate(dict.fromkeys(request.prompt_id for request in requests))}
    own = np.array([not request.prompt_id for request in requests])
    group = np.array([identities[request.prompt_id] for request in requests])
    arrival = np.array([request.arrival_s for request in requests])
    return Traffic(
        arrival_us=(arrival - arrival[0]) * SECOND_US,
        prompt=prompt,
        output=np.array([request.output for request in requests]),
        shared=np.where(own, 0, shortest_of_each(prompt, group)),
        group=np.where(own, -1, group),
        place=np.array([place for place, _ in placed]),
    )


def _from_json(path: Path, text: str, names: Mapping[str, Key]) -> dict[int, dict[str, Any]]:
    return {
        place: {name: value for name, value in row.items() if name in names and value is not None}
        for place, row in rows_of_json(path, text, timed="e2e_ms" in names).items()
    }


def _from_csv(path: Path, text: str, names: Mapping[str, Key]) -> dict[int, dict[str, Any]]:
    table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    lacking = [name for name, key in names.items() if key.required and table and name not in table[0]]
    if lacking:
        raise ConfigError(f"{path}: lacks the columns {', '.join(lacking)}; give {', '.join(names)}")
    return {
        place: {
            name: _number(row[name]) if key.kind in ("integer", "number") else row[name]
            for name, key in names.items()
            if row.get(name)
        }
        for place, row in enumerate(table, 1)
    }


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value
