"""The file that `predict calls` writes: the calls that named runs need, by ranks per node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from sampling.call import Phase, Request, make_call
from sampling.errors import ConfigError, SamplesError
from sampling.files.faults import Fault
from sampling.files.schema import read

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
    """Ranks per node → requests, of runs on `hardware` (the name of a Gpu).

    ConfigError names the file and every fault; calls for other hardware are one.
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
