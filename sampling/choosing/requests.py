"""What a session is to time: the calls that named runs need, then calls that fill the space; less what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from sampling.call import Call, Phase, Request
from sampling.catalogue import make_call
from sampling.choosing.shapes import DrawnModel, calls_of
from sampling.errors import ConfigError, SamplesError
from sampling.files.faults import Fault
from sampling.files.schema import read
from sampling.store.sample import Sample

WRITE_IT = "write it with `predict calls RUN.yml`"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedCall:
    """One call of a calls file, and the phases of it to time with `ranks_per_node` busy ranks."""

    ranks_per_node: int
    call: str
    fields: Mapping[str, Any]
    phases: tuple[str, ...]

    def contradictions(self) -> Iterator[Fault]:
        try:
            call = make_call(self.call, self.fields)
        except (TypeError, ValueError, SamplesError) as error:
            yield Fault(path="", problem=str(error))
            return
        for phase in self.phases:
            if phase not in call.PHASES:
                problem = f"{call.NAME} has no {phase!r}; give any of {', '.join(call.PHASES)}"
                yield Fault(path="phases", problem=problem)

    def request(self) -> Request:
        return Request(call=make_call(self.call, self.fields), phases=cast("tuple[Phase, ...]", self.phases))


@dataclass(frozen=True, kw_only=True, slots=True)
class CallsFile:
    """The calls that runs on one hardware need, as `predict calls` writes them."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 2}

    hardware: str
    """The name of a Gpu."""
    calls: tuple[RequestedCall, ...]


def read_calls_file(path: Path, hardware: str) -> dict[int, list[Request]]:
    """The calls that `predict calls` wrote for runs on `hardware` (the name of a Gpu): ranks per node → requests.

    ConfigError names the file and every fault, other hardware being one.
    """
    file = read(CallsFile, path, fix=WRITE_IT)
    if file.hardware != hardware:
        raise ConfigError(
            f"{path}: hardware: its calls are of runs on {file.hardware!r}, this session is on {hardware!r}; sample where "
            "that hardware is (--hardware chooses it), or write the calls of runs with this cluster.hardware"
        )
    requests: dict[int, list[Request]] = {}
    for entry in file.calls:
        requests.setdefault(entry.ranks_per_node, []).append(entry.request())
    return requests


def calls_file_content(requests: Mapping[int, Iterable[Request]], hardware: str) -> dict[str, Any]:
    """The inverse of `read_calls_file`."""
    return {
        **CallsFile.HEADER,
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
