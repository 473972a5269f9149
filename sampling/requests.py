"""What a session is to time: the calls that named runs need, then calls that fill the space; less what is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sampling.call import Call, Phase, make_call
from sampling.compute import Request
from sampling.errors import ConfigError
from sampling.shapes import DrawnModel, calls_of
from sampling.store import Sample

CALLS_VERSION = 1


def read_calls_file(path: Path) -> dict[int, list[Request]]:
    """The calls that `predict calls` wrote: ranks a node → requests. ConfigError names the file and the fault."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); write it with `predict calls RUN.yml`") from None
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}: line {error.lineno}: not JSON ({error.msg}); write it with `predict calls RUN.yml`"
        ) from None
    if not isinstance(content, dict) or content.get("version") != CALLS_VERSION:
        raise ConfigError(f"{path}: not a calls file of version {CALLS_VERSION}; write it with `predict calls RUN.yml`")
    requests: dict[int, list[Request]] = {}
    for entry in content["calls"]:
        request = Request(call=make_call(entry["call"], entry["fields"]), phases=tuple(entry["phases"]))
        requests.setdefault(entry["ranks_per_node"], []).append(request)
    return requests


def calls_file_content(requests: dict[int, list[Request]]) -> dict[str, Any]:
    """The inverse of `read_calls_file`."""
    return {
        "version": CALLS_VERSION,
        "calls": [
            {
                "ranks_per_node": ranks,
                "call": request.call.NAME,
                "fields": request.call.fields(),
                "phases": list(request.phases),
            }
            for ranks, of_ranks in requests.items()
            for request in of_ranks
        ],
    }


def space_filling(models: Iterable[DrawnModel], ranks: int) -> Iterator[Request]:
    """Every cell of every model; the operators they are made of for every second one, since cells carry a step."""
    for index, model in enumerate(models):
        for call in calls_of(model, ranks, with_parts=index % 2 == 0):
            yield Request(call=call, phases=_phases_worth_timing(call))


def _phases_worth_timing(call: Call) -> tuple[Phase, ...]:
    """All of them, but no halves of a backward that spans ranks: torch's schedules that split it run on whole layers."""
    if call.group_size == 1:
        return call.PHASES
    return tuple(phase for phase in call.PHASES if phase not in ("backward_input", "backward_weight"))


def missing(requests: Iterable[Request], kept: Iterable[Sample], ranks: int, visits: int) -> list[Request]:
    """What is still to be timed for every phase of `requests` to have `visits` good rows taken with `ranks` busy ranks.

    One round of all calls follows another, so that the rows of one call lie apart in time and a slow spell of the machine
    does not fall on all of them.
    """
    have = Counter(
        (sample.call, sample.phase) for sample in kept if sample.busy_ranks == ranks and not sample.quarantine
    )
    wanted: dict[Call, dict[Phase, None]] = {}
    for request in requests:
        wanted.setdefault(request.call, {}).update(dict.fromkeys(request.phases))
    rounds = []
    for visit in range(visits):
        for call, phases in wanted.items():
            lacking = tuple(phase for phase in phases if have[call, phase] <= visit)
            if lacking:
                rounds.append(Request(call=call, phases=lacking))
    return rounds
