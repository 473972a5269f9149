"""Requests from a file: a CSV table, or the per-request lifecycle metrics of inference-perf.

    arrival_s,prompt,output[,prompt_id]        seconds from any zero; equal prompt_id mean the same prompt

A lifecycle file is a JSON list of objects with start_time in seconds and info.input_tokens and info.output_tokens.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from predict.serving.scheduler.traffic import SECOND_US, Traffic
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error, shown
from sampling.files.keys import Key, keys_of
from sampling.files.regular import NotReadError, read_text
from sampling.files.schema import MOST_TOLD, build

COLUMNS_IN_WORDS = "arrival_s, prompt, output and, where prompts repeat, prompt_id"


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


def read_requests(path: Path) -> Traffic:
    """The requests of a file, in order of arrival and from the first one on. ConfigError lists the first faults of its rows."""
    try:
        text = read_text(path)
    except NotReadError as error:
        raise ConfigError(f"{path}: {error}; give a file of requests") from None
    rows = _from_json(path, text) if path.suffix.lower() == ".json" else _from_csv(path, text)
    found, faults = [], []
    for place, row in enumerate(rows, 1):
        request, wrong = build(FileRequest, row, section=f"request {place}")
        faults += wrong
        if request:
            found.append(request)
        if len(faults) >= MOST_TOLD:
            break
    if faults or not found:
        raise config_error(faults or [Fault(path="", problem="holds no requests")], {"": str(path)})
    return _traffic(sorted(found, key=lambda request: request.arrival_s))


def _traffic(requests: Sequence[FileRequest]) -> Traffic:
    prompt = np.array([request.prompt for request in requests])
    identities = {name: place for place, name in enumerate(dict.fromkeys(request.prompt_id for request in requests))}
    own = np.array([not request.prompt_id for request in requests])
    group = np.array([identities[request.prompt_id] for request in requests])
    arrival = np.array([request.arrival_s for request in requests])
    shortest = {place: prompt[group == place].min() for place in set(group.tolist())}
    return Traffic(
        arrival_us=(arrival - arrival[0]) * SECOND_US,
        prompt=prompt,
        output=np.array([request.output for request in requests]),
        shared=np.where(own, 0, [shortest[place] for place in group.tolist()]),
        group=np.where(own, -1, group),
    )


def _from_csv(path: Path, text: str) -> list[dict[str, Any]]:
    table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    names = {key.name: key for key in keys_of(FileRequest)}
    lacking = [name for name, key in names.items() if key.required and table and name not in table[0]]
    if lacking:
        raise ConfigError(f"{path}: lacks the columns {', '.join(lacking)}; give {COLUMNS_IN_WORDS}")
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


def _from_json(path: Path, text: str) -> list[dict[str, Any]]:
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
    return [_from_lifecycle(each) for each in content]


def _from_lifecycle(each: Mapping[str, Any]) -> dict[str, Any]:
    info = each["info"]
    named = {
        "arrival_s": each.get("start_time"),
        "prompt": info.get("input_tokens"),
        "output": info.get("output_tokens"),
    }
    return {name: value for name, value in named.items() if value is not None}
