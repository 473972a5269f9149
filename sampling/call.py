"""A Call, which is what can be timed, and its phases.

A call is an instance of a frozen dataclass, so equal calls are equal keys and are priced once. The store keeps the fields
and times of calls; features and roofline terms are always computed from the fields, in training and in prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

from sampling.additions import add, modules_of
from sampling.errors import SamplesError
from sampling.files.faults import did_you_mean
from sampling.hardware.cluster import Cluster

Phase = Literal[
    "forward",
    "backward",
    "backward_accumulate",
    "backward_input",
    "backward_weight",
    "step",
    "compute_beside",
    "communication_beside",
]


State = Literal["burst", "sustained"]
"""State of the device while a call was timed: rested, or after a second of the same work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(ABC):
    """A piece of work described by its shape. Subclasses declare the fields, each an int, a bool or a str.

    One that adds no field has `__slots__ = ()` in place of the decorator of a dataclass, which costs every start half a millisecond.
    """

    NAME: ClassVar[str]
    PHASES: ClassVar[tuple[Phase, ...]]
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    """Fields that may be arrays, so that `terms` and `features` of many calls are computed at once."""
    DONE_PER_RUN: ClassVar[int] = 1
    """Number of times that one run of its workload does the call."""
    OVERHEAD: ClassVar[bool] = False
    """Whether it is a framework's cost on top of work that other calls represent: 0 unless it was sampled."""
    HEADING: ClassVar[str] = ""
    """Heading of a step's ledger for all of its time; empty for its own name, or the names of its parts."""

    @property
    def group_size(self) -> int:
        """Ranks that must run the call together; 1 for work on a single device."""
        return 1

    def fields(self) -> dict[str, Any]:
        """The values of its fields by name."""
        return {name: getattr(self, name) for name in field_names(type(self))}

    @abstractmethod
    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Microseconds at the machine's stated peaks, one entry per resource (compute, memory, wire, …).

        The base of every time model is their sum with non-negative weights, so each must scale with its resource.
        """

    @abstractmethod
    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Finite numbers for the learnt correction on top of `terms`."""

    def buffer_bytes(self) -> float:
        """Bytes per rank of the buffers that it communicates."""
        return 0.0

    def resident_bytes(self) -> float:
        """Bytes of its other tensors that are held while it is timed, an estimate within a factor of two."""
        return 0.0

    def parts(self, phase: Phase) -> Sequence[Counted]:
        """The smaller calls that it is made of, for the ledger and where it was never sampled; () if it is atomic."""
        return ()


@cache
def field_names(cls: type[Call]) -> tuple[str, ...]:
    """The names of a class's fields, in the order of their declaration."""
    return tuple(field.name for field in fields(cls))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """`count` times a phase of a call: the unit into which a run is decomposed."""

    call: Call
    phase: Phase
    count: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A call and the phases of it to time."""

    call: Call
    phases: tuple[Phase, ...]


FOLDERS = ("sampling.collectives", "sampling.operators", "sampling.cells")

CallType = TypeVar("CallType", bound=type[Call])
_REGISTERED: dict[str, type[Call]] = {}


def register(cls: CallType) -> CallType:
    """Class decorator: make a call known by its NAME to the store, the sampler and the regressors."""
    add(_REGISTERED, cls.NAME, cls, "calls")
    return cls


def registry() -> Mapping[str, type[Call]]:
    """Every operator, cell and collective by its name; every file in FOLDERS is imported, so that no list needs an entry for a new one."""
    for folder in FOLDERS:
        modules_of(folder)
    return _REGISTERED


def make_call(name: str, values: Mapping[str, Any]) -> Call:
    """Rebuild a call from its stored name and fields; numpy scalars become Python's own.

    A field with a default may be missing, since the rows may be older than the field. Raises SamplesError for an unknown name or field.
    """
    known = registry()
    if name not in known:
        near = did_you_mean(name, known)
        raise SamplesError(f"no operator or collective is named {name!r}{near} (known: {', '.join(sorted(known))})")
    cls = known[name]
    wanted = {field.name: field.type for field in fields(cls)}
    unknown = set(values) - set(wanted)
    missing = {field.name for field in fields(cls) if field.default is MISSING} - set(values)
    if unknown or missing:
        raise SamplesError(f"{name}: fields do not match: unknown {sorted(unknown)}, missing {sorted(missing)}")
    casts: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "str": str}
    return cls(**{key: casts[str(wanted[key])](value) for key, value in values.items()})
