"""What a session is to time: the calls that named runs need, then calls that fill the space; less what is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sampling.call import Call, Phase, Request
from sampling.catalogue import make_call
from sampling.choosing.shapes import DrawnModel, calls_of
from sampling.errors import ConfigError, SamplesError
from sampling.store.sample import Sample

CALLS_VERSION = 2
WRITE_IT = "write it with `predict calls RUN.yml`"


def read_calls_file(path: Path, hardware: str) -> dict[int, list[Request]]:
    """The calls that `predict calls` wrote for runs on `hardware` (the name of a Gpu): ranks a node → requests.

    ConfigError names the file and the fault, other hardware being one.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {WRITE_IT}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; {WRITE_IT}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: line {error.lineno}: not JSON ({error.msg}); {WRITE_IT}") from None
    if not isinstance(content, dict) or content.get("version") != CALLS_VERSION:
        raise ConfigError(f"{path}: not a calls file of version {CALLS_VERSION}; {WRITE_IT}")
    wanted, entries = content.get("hardware"), content.get("calls")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: calls: {entries!r} is not a list of calls; {WRITE_IT}")
    if wanted != hardware:
        raise ConfigError(
            f"{path}: hardware: its calls are of runs on {wanted!r}, this session is on {hardware!r}; sample where that "
            "hardware is (--hardware chooses it), or write the calls of runs with this cluster.hardware"
        )
    requests: dict[int, list[Request]] = {}
    for index, entry in enumerate(entries):
        try:
            ranks, request = _read_entry(entry)
        except (AttributeError, KeyError, TypeError, ValueError, SamplesError) as error:
            problem = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"{path}: calls[{index}]: {problem}; {WRITE_IT}") from None
        requests.setdefault(ranks, []).append(request)
    return requests


def _read_entry(entry: Mapping[str, Any]) -> tuple[int, Request]:
    """Ranks a node and the request. For what is none, the error that stumbling over it raises."""
    call, phases, ranks = make_call(entry["call"], entry["fields"]), entry["phases"], entry["ranks_per_node"]
    strange = [phase for phase in phases if phase not in call.PHASES]
    if strange:
        raise ValueError(f"phases: {call.NAME} has no {strange[0]!r}, only {', '.join(call.PHASES)}")
    if type(ranks) is not int or ranks < 1:
        raise ValueError(f"ranks_per_node: {ranks!r} is not a number of ranks")
    return ranks, Request(call=call, phases=tuple(phases))


def calls_file_content(requests: Mapping[int, Iterable[Request]], hardware: str) -> dict[str, Any]:
    """The inverse of `read_calls_file`."""
    return {
        "version": CALLS_VERSION,
        "hardware": hardware,
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
            yield Request(call=call, phases=phases_worth_timing(call))


def phases_worth_timing(call: Call) -> tuple[Phase, ...]:
    """All of them, but no halves of a backward that spans ranks: torch's schedules that split it run on whole layers.

    Nor of a compiled one, which is a single piece.
    """
    if call.group_size == 1 and not call.fields().get("compiled"):
        return call.PHASES
    return tuple(phase for phase in call.PHASES if phase not in ("backward_input", "backward_weight"))


def missing(requests: Iterable[Request], kept: Iterable[Sample], ranks: int, visits: int) -> list[Request]:
    """What is still to be timed for every phase of `requests` to have `visits` good rows taken with `ranks` busy ranks.

    One round of all calls follows another, so that the rows of one call lie apart in time and a slow spell of the machine
    does not fall on all of them.
    """
    have = Counter(
        (sample.call, sample.phase)
        for sample in kept
        # both states of a device are timed in one visit
        if sample.busy_ranks == ranks and not sample.quarantine and sample.state == "burst"
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
