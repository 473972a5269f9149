"""Requests as load generators write them to JSON: rows of arrival_s, prompt and output, with ttft_ms and e2e_ms where their times are told.

- per-request lifecycle metrics of inference-perf: a list of objects with start_time in seconds, info.input_tokens and
  info.output_tokens, and for the times end_time and info.output_token_times;
- what `vllm bench serve --save-result --save-detailed` writes: an object with the lists start_times, input_lens and output_lens, and for
  the times ttfts and itls, in seconds.

Requests that failed are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sampling.errors import ConfigError
from sampling.files.faults import shown

COLUMNS_IN_WORDS = "arrival_s, prompt, output and, where prompts repeat, prompt_id"
LIFECYCLE = "a list of objects with start_time and info.input_tokens and info.output_tokens"
BENCH = ("start_times", "input_lens", "output_lens")
BENCH_TIMES = ("ttfts", "itls")
FORMS = f"{LIFECYCLE}, or the object with {', '.join(BENCH)} that `vllm bench serve --save-detailed` writes"
Row = dict[str, Any]


def rows_of_json(path: Path, text: str, *, timed: bool) -> dict[int, Row]:
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
        raise ConfigError(f"{path}: is of another schema; give {FORMS}")
    timeless = next((place for place, row in rows.items() if None in (row["ttft_ms"], row["e2e_ms"])), 0)
    if timed and timeless:
        raise ConfigError(f"{path}: request {timeless} lacks its times; give {times}")
    return rows


def _of_lifecycle(each: Mapping[str, Any]) -> Row:
    info, start = each["info"], each.get("start_time")
    tokens = info.get("output_token_times")
    return {
        "arrival_s": start,
        "prompt": info.get("input_tokens"),
        "output": info.get("output_tokens"),
        "ttft_ms": _ms_between(start, tokens[0] if isinstance(tokens, list) and tokens else None),
        "e2e_ms": _ms_between(start, each.get("end_time")),
    }


def _of_bench(path: Path, content: Mapping[str, Any]) -> dict[int, Row]:
    given = {name: content.get(name) for name in (*BENCH, *BENCH_TIMES, "errors")}
    lists = {name: each if isinstance(each, list) else [] for name, each in given.items()}
    lacking = [name for name in BENCH if not lists[name]]
    uneven = [name for name in BENCH if len(lists[name]) != len(lists[BENCH[0]])]
    if lacking or uneven:
        told = f"lacks {', '.join(lacking)}" if lacking else f"has lists of different lengths ({', '.join(BENCH)})"
        raise ConfigError(f"{path}: {told}; give what a recent `vllm bench serve --save-result --save-detailed` writes")
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
    """Milliseconds from one time in seconds to another; None where either is no number."""
    return 1e3 * (end - start) if _is_number(start) and _is_number(end) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))
