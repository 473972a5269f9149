"""Requests from a file: a CSV table, or the per-request lifecycle metrics of inference-perf.

    arrival_s,prompt,output[,prompt_id][,ttft_ms,e2e_ms]        seconds from any zero; equal prompt_id mean the same prompt

A lifecycle file is a JSON list of objects with start_time in seconds and info.input_tokens and info.output_tokens; where the times of
the requests count too, with end_time and info.output_token_times.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from predict.serving.batch import Floats
from predict.serving.scheduler.traffic import Traffic, shortest_of_each
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error, shown
from sampling.files.keys import Key, keys_of
from sampling.files.regular import NotReadError, read_text
from sampling.files.schema import MOST_TOLD, build
from sampling.units import SECOND_US

COLUMNS_IN_WORDS = "arrival_s, prompt, output and, where prompts repeat, prompt_id"
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
    requests = _read(path, MeasuredRequest)
    if max(request.output for request in requests) < 2:
        problem = "no request has 2 tokens or more, so that none tells the time of a step"
        raise config_error([Fault(path="output", problem=problem)], {"": str(path)})
    ttft_ms, e2e_ms = (np.array([getattr(one, name) for one in requests]) for name in ("ttft_ms", "e2e_ms"))
    return MeasuredRequests(traffic=_traffic(requests), ttft_us=1e3 * ttft_ms, e2e_us=1e3 * e2e_ms)


def _read(path: Path, cls: type[Request]) -> list[Request]:
    """The requests in order of arrival."""
    try:
        text = read_text(path)
    except NotReadError as error:
        raise ConfigError(f"{path}: {error}; give a file of requests") from None
    read = _from_json if path.suffix.lower() == ".json" else _from_csv
    rows = read(path, text, {key.name: key for key in keys_of(cls)})  # type: ignore[arg-type]
    found: list[Request] = []
    faults: list[Fault] = []
    for place, row in enumerate(rows, 1):
        request, wrong = build(cls, row, section=f"request {place}")
        faults += wrong
        if request:
            found.append(request)
        if len(faults) >= MOST_TOLD:
            break
    if faults or not found:
        raise config_error(faults or [Fault(path="", problem="holds no requests")], {"": str(path)})
    return sorted(found, key=lambda request: request.arrival_s)


def _traffic(requests: Sequence[FileRequest]) -> Traffic:
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
    )


def _from_csv(path: Path, text: str, names: Mapping[str, Key]) -> list[dict[str, Any]]:
    table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    lacking = [name for name, key in names.items() if key.required and table and name not in table[0]]
    if lacking:
        raise ConfigError(f"{path}: lacks the columns {', '.join(lacking)}; give {', '.join(names)}")
    return [
        {
            name: _number(row[name]) if key.kind in ("integer", "number") else row[name]
            for name, key in names.items()
            if row.get(name)
        }
        for row in table
    ]


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _from_json(path: Path, text: str, names: Mapping[str, Key]) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(
            f"{path}: is not JSON; give {COLUMNS_IN_WORDS} as CSV, or per-request lifecycle metrics"
        ) from None
    wanted = "a list of objects with start_time and info.input_tokens and info.output_tokens"
    if not isinstance(content, list):
        raise ConfigError(f"{path}: holds {shown(content)} at its top level; give {wanted}")
    if not all(isinstance(each, dict) and isinstance(each.get("info"), dict) for each in content):
        raise ConfigError(f"{path}: is of another schema; give {wanted}")
    rows = [_from_lifecycle(each) for each in content]
    timeless = next((place for place, row in enumerate(rows, 1) if row["ttft_ms"] is None or row["e2e_ms"] is None), 0)
    if timeless and "e2e_ms" in names:
        raise ConfigError(f"{path}: request {timeless} lacks its times; give end_time and info.output_token_times")
    return [{name: value for name, value in row.items() if name in names and value is not None} for row in rows]


def _from_lifecycle(each: Mapping[str, Any]) -> dict[str, Any]:
    info, start = each["info"], each.get("start_time")
    tokens = info.get("output_token_times")
    return {
        "arrival_s": start,
        "prompt": info.get("input_tokens"),
        "output": info.get("output_tokens"),
        "ttft_ms": _ms_between(start, tokens[0] if isinstance(tokens, list) and tokens else None),
        "e2e_ms": _ms_between(start, each.get("end_time")),
    }


def _ms_between(start: Any, end: Any) -> Any:
    """Milliseconds from one time in seconds to another; None where either is no number."""
    numbers = isinstance(start, int | float) and isinstance(end, int | float)
    return 1e3 * (end - start) if numbers else None
