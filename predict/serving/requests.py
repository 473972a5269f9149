"""Requests from a file: a CSV table, or JSON that a load generator wrote (request_json.py).

arrival_s,prompt,output[,prompt_id][,ttft_ms,e2e_ms]        seconds from any zero; equal prompt_id mean the same prompt
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from predict.serving.traffic import Traffic, cut_short, shortest_of_each
from regressors.features.arrays import Floats
from sampling.errors import ConfigError
from sampling.files.disk import NotReadError, read_text
from sampling.files.faults import Fault, config_error, shown
from sampling.files.schema import MOST_TOLD, Key, build, keys_of
from sampling.units import SECOND_US

# Requests as load generators write them to JSON: rows of arrival_s, prompt and output, with ttft_ms and e2e_ms where their times are stated.
#
# - per-request lifecycle metrics of inference-perf: a list of objects with start_time in seconds, info.input_tokens and
#   info.output_tokens, and for the times end_time and info.output_token_times;
# - what `vllm bench serve --save-result --save-detailed` writes: an object with the lists start_times, input_lens and output_lens, and for
#   the times ttfts and itls, in seconds.
#
# Requests that failed are left out.

COLUMNS_IN_WORDS = "arrival_s, prompt, output and, where prompts repeat, prompt_id"
LIFECYCLE = "a list of objects with start_time and info.input_tokens and info.output_tokens"
BENCH = ("start_times", "input_lens", "output_lens")
BENCH_TIMES = ("ttfts", "itls")
FORMS = f"{LIFECYCLE}, or the object with {', '.join(BENCH)} that `vllm bench serve --save-detailed` writes"
JsonRow = dict[str, Any]


def rows_of_json(path: Path, text: str, *, timed: bool) -> dict[int, JsonRow]:
    """The requests that were answered, by their place in the file, from 1. ConfigError for another schema, and for a request without its
    times where `timed`."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: is not JSON; give {COLUMNS_IN_WORDS} as CSV, or {FORMS}") from None
    if isinstance(content, dict) and BENCH[1] in content:
        rows, times = _of_bench(path, content), "ttfts and itls (--save-detailed)"
    elif not isinstance(content, list):
        raise ConfigError(f"{path}: holds {shown(content)} at its top level; give {FORMS}")
    elif all(isinstance(each, dict) and isinstance(each.get("info"), dict) for each in content):
        rows = {place: _of_lifecycle(each) for place, each in enumerate(content, 1) if not each.get("error")}
        times = "end_time and info.output_token_times"
    else:
        raise ConfigError(f"{path}: has another schema; give {FORMS}")
    timeless = next((place for place, row in rows.items() if None in (row["ttft_ms"], row["e2e_ms"])), 0)
    if timed and timeless:
        raise ConfigError(f"{path}: request {timeless} lacks its times; give {times}")
    return rows


def _of_lifecycle(each: Mapping[str, Any]) -> JsonRow:
    info, start = each["info"], each.get("start_time")
    tokens = info.get("output_token_times")
    return {
        "arrival_s": start,
        "prompt": info.get("input_tokens"),
        "output": info.get("output_tokens"),
        "ttft_ms": _ms_between(start, tokens[0] if isinstance(tokens, list) and tokens else None),
        "e2e_ms": _ms_between(start, each.get("end_time")),
    }


def _of_bench(path: Path, content: Mapping[str, Any]) -> dict[int, JsonRow]:
    given = {name: content.get(name) for name in (*BENCH, *BENCH_TIMES, "errors")}
    lists = {name: each if isinstance(each, list) else [] for name, each in given.items()}
    lacking = [name for name in BENCH if not lists[name]]
    uneven = [name for name in BENCH if len(lists[name]) != len(lists[BENCH[0]])]
    if lacking or uneven:
        fault = f"lacks {', '.join(lacking)}" if lacking else f"has lists of different lengths ({', '.join(BENCH)})"
        raise ConfigError(
            f"{path}: {fault}; give what a recent `vllm bench serve --save-result --save-detailed` writes"
        )
    return {
        place: {
            "arrival_s": start,
            "prompt": prompt,
            "output": output,
            "ttft_ms": _ms_between(0.0, first),
            "e2e_ms": _ms_between(0.0, first + sum(gaps) if _is_number(first) and _are_numbers(gaps) else None),
        }
        for place, (start, prompt, output, first, gaps, error) in enumerate(zip_longest(*lists.values()), 1)
        if start is not None and not error
    }


def _ms_between(start: Any, end: Any) -> Any:
    """Milliseconds from one time in seconds to another; None where either is not a number."""
    return 1e3 * (end - start) if _is_number(start) and _is_number(end) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


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
        problem = "no request has 2 tokens or more, so that none shows the time of a step"
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


# Recorded requests played at another rate, or in a closed loop: lengths and prompts stay together, in the recorded order.


def at_rate_of(recorded: Traffic, rate: float) -> Traffic:
    """The requests at so many per second: the gaps between them are stretched alike, or even where all arrive at once."""
    own = recorded.rate
    arrival_us = recorded.arrival_us * (own / rate) if own else np.arange(len(recorded)) / rate * SECOND_US
    return replace(recorded, arrival_us=arrival_us)


def played_again(recorded: Traffic, count: int) -> Traffic:
    """`count` requests or a few more: the recorded ones over and over, a mean gap between their rounds. A prompt that
    several of them have recurs in each round; one that a single request has is new each time."""
    rounds = -(-count // len(recorded))
    if rounds <= 1:
        return recorded
    round_us = len(recorded) / recorded.rate * SECOND_US if recorded.rate else 0.0
    known = recorded.group >= 0
    several = np.zeros(len(recorded), dtype=bool)
    several[known] = np.bincount(recorded.group[known])[recorded.group[known]] > 1
    return Traffic(
        arrival_us=(recorded.arrival_us + round_us * np.arange(rounds)[:, None]).ravel(),
        prompt=np.tile(recorded.prompt, rounds),
        output=np.tile(recorded.output, rounds),
        shared=np.tile(np.where(several, recorded.shared, 0), rounds),
        group=np.tile(np.where(several, recorded.group, -1), rounds),
    )


def in_closed_loop(recorded: Traffic, in_flight: int, count: int) -> Traffic:
    """`count` recorded requests or a few more, `in_flight` of them at any time."""
    again = played_again(recorded, count)
    arrival_us = np.zeros(len(again))
    output = cut_short(again.output, in_flight)
    return replace(again, arrival_us=arrival_us, output=output, in_flight=in_flight, is_settled=True)
