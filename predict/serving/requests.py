"""Requests from a file: a CSV table, JSON that a load generator wrote, or the JSON lines of a public trace.

arrival_s,prompt,output[,prompt_id][,ttft_ms,e2e_ms]        seconds from any zero; equal prompt_id mean the same prompt
{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, …]}     a line of a trace with hashed blocks
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from predict.serving.traffic import Chains, Traffic, cut_short, shortest_of_each
from predict.truth_table import csv_table, value_of
from regressors.features.arrays import Floats, Ints
from sampling.errors import ConfigError
from sampling.files.disk import NotReadError, read_text
from sampling.files.faults import Fault, config_error, shown
from sampling.files.schema import MOST_TOLD, Key, build, keys_of
from sampling.number_text import as_given
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


# Public traces whose requests name the blocks of their prompts: one JSON object a line.
#
# - Mooncake's (github.com/kvcache-ai/Mooncake, FAST25-release/traces): timestamp in ms, input_length, output_length, and hash_ids of blocks of
#   512 tokens, the last of which may be shorter;
# - those of Alibaba's Qwen service (github.com/alibaba-edu/qwen-bailian-usagetraces-anon): the same keys, timestamp in seconds, blocks of 16.
#
# An id stands for a block and all that comes before it.

TRACE_KEYS = ("timestamp", "input_length", "output_length")
TRACE_SUFFIXES = (".jsonl", ".ndjson")
BLOCKS = (16, 512)
"""Tokens of a block in these traces."""
OF_SECONDS = 16
"""Tokens of a block in those whose times are seconds; others have milliseconds."""


def read_trace(path: Path) -> Traffic:
    """The requests of a trace, in order of arrival and from the first one on. ConfigError names the first line with a fault."""
    try:
        lines = read_text(path).splitlines()
    except NotReadError as error:
        raise ConfigError(f"{path}: {error}; give a file of requests") from None
    rows = [_traced(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise ConfigError(f"{path}: holds no requests; give a line for each, with {', '.join(TRACE_KEYS)}")
    order = np.argsort([row["timestamp"] for row in rows], kind="stable")
    arrival, prompt, output = (np.array([row[key] for row in rows])[order] for key in TRACE_KEYS)
    ids = [np.array(rows[place].get("hash_ids") or [], dtype=np.int64) for place in order]
    block = _block_of(path, prompt, np.array([len(each) for each in ids]))
    return Traffic(
        arrival_us=(arrival - arrival[0]) * (SECOND_US if block == OF_SECONDS else 1e3),
        prompt=prompt,
        output=output,
        shared=np.zeros_like(prompt),
        group=np.full(len(prompt), -1),
        chains=chains_of_blocks(ids, prompt, block) if block else None,
        place=order + 1,
    )


def _traced(path: Path, number: int, line: str) -> JsonRow:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ConfigError(f"{path}: line {number} is not a JSON object; give {', '.join(TRACE_KEYS)} and hash_ids")
    for key in TRACE_KEYS:
        value: Any = row.get(key)
        least, most = (0, 1e12) if key == "timestamp" else (1, 1e8)
        if type(value) not in (int, float) or not least <= value <= most or (least and value != int(value)):
            fix = "a time of 0 or more" if key == "timestamp" else "whole tokens from 1"
            raise ConfigError(f"{path}: line {number}: {key}: {shown(value)} is out of range; give {fix}")
    ids = row.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(each) is int and abs(each) < 2**62 for each in ids):
        raise ConfigError(
            f"{path}: line {number}: hash_ids: is not a list of whole numbers; give the ids of the prompt's blocks"
        )
    return row


def _block_of(path: Path, prompt: Ints, blocks: Ints) -> int:
    """Tokens of a block: the fewest of BLOCKS with which every prompt has as many as it has ids; 0 where there are no ids."""
    if not blocks.any():
        return 0
    known = blocks > 0
    for block in BLOCKS:
        if (abs(blocks[known] - prompt[known] / block) <= 1).all():
            return block
    at = int(np.argmax(known & (abs(blocks - prompt / BLOCKS[-1]) > 1)))
    raise ConfigError(
        f"{path}: request {at + 1} has {prompt[at]} tokens and {blocks[at]} hash_ids; give one for each block of {' or '.join(map(str, BLOCKS))} tokens"
    )


def chains_of_blocks(ids: Sequence[Ints], prompt: Ints, block: int) -> Chains:
    """The tree of prompts whose blocks have ids; blocks that a single request has are left out, and those that always come together are one
    segment."""
    counts = np.array([len(each) for each in ids])
    first = np.concatenate(([0], np.cumsum(counts)))
    flat = np.concatenate(ids)
    depth = np.arange(len(flat)) - np.repeat(first[:-1], counts)
    named = np.zeros(len(flat), dtype=np.int64)
    # an id stands for all that comes before it: blocks are named level by level, by their own id and the name before
    for level in range(int(counts.max())):
        here = np.flatnonzero(depth == level)
        before = named[here - 1] if level else np.zeros(len(here), dtype=np.int64)
        named[here] = np.unique(np.stack((before, flat[here])), axis=1, return_inverse=True)[1].ravel()
        named[here] += 1 + (named.max() if level else 0)
    users = np.bincount(named)[named]
    shared = users > 1
    starts = shared & ((depth == 0) | (np.concatenate(([0], users[:-1])) != users))
    whose = np.repeat(np.arange(len(ids)), counts)
    _, of_first, segment = np.unique(named[starts], return_index=True, return_inverse=True)
    # a segment ends where the next begins, or what is shared of the request does
    place = np.flatnonzero(starts)
    shared_of = np.bincount(whose, weights=shared, minlength=len(ids)).astype(np.int64)
    following = np.concatenate((depth[place][1:], [0]))
    is_last = np.concatenate((whose[place][1:] != whose[place][:-1], [True]))
    until = np.where(is_last, shared_of[whose[place]], following)
    ends = np.minimum(until * block, prompt[whose[place]])
    return Chains(
        first=np.concatenate(([0], np.cumsum(np.bincount(whose, weights=starts, minlength=len(ids)).astype(np.int64)))),
        segment=segment.astype(np.int64),
        begins=(depth[place] * block)[of_first],
        ends=ends[of_first],
    )


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
        problem = f"{as_given(self.e2e_ms)} is less than ttft_ms, {as_given(self.ttft_ms)}; give the time up to the last token"
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
    if path.suffix.lower() in TRACE_SUFFIXES:
        return read_trace(path)
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
    try:
        table = csv_table(text)
    except NotReadError as error:
        raise ConfigError(f"{path}: {error}") from None
    lacking = [name for name, key in names.items() if key.required and table.rows and name not in table.names]
    if lacking:
        raise ConfigError(f"{path}: lacks the columns {', '.join(lacking)}; give {', '.join(names)}")
    return {
        place: {name: value_of(names[name], cell) for name, cell in table.stated(row).items() if name in names}
        for place, row in enumerate(table.rows, 1)
    }


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
        chains=recorded.chains and recorded.chains.chosen(np.tile(np.arange(len(recorded)), rounds)),
    )


def in_closed_loop(recorded: Traffic, in_flight: int, count: int) -> Traffic:
    """`count` recorded requests or a few more, `in_flight` of them at any time."""
    again = played_again(recorded, count)
    arrival_us = np.zeros(len(again))
    output = cut_short(again.output, in_flight)
    return replace(again, arrival_us=arrival_us, output=output, in_flight=in_flight, is_settled=True)
