"""What can be timed: a Call and its phases.

A call IS an instance of a frozen dataclass, so equal calls are equal keys and are costed once. The store keeps a
call's fields and times; features and roofline terms are always computed from the fields, on both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal

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
"""How warm the device was that a call was timed on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(ABC):
    """One piece of work by its shape. Subclasses declare the fields; every field is an int, a bool or a str."""

    NAME: ClassVar[str]
    PHASES: ClassVar[tuple[Phase, ...]]
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    """Fields that may hold an array each, so that `terms` and `features` of many calls come from one formula at once."""
    DONE_PER_RUN: ClassVar[int] = 1
    """How many times one run of its workload does the call."""
    OVERHEAD: ClassVar[bool] = False
    """Whether it is a framework's own cost beside work that other calls stand for: nothing, unless it was sampled."""
    HEADING: ClassVar[str] = ""
    """Heading of a step's ledger under which all of its time stands; empty for its own name, or those of its parts."""

    @property
    def group_size(self) -> int:
        """Ranks that must run the call together; 1 for work of a single device."""
        return 1

    def fields(self) -> dict[str, Any]:
        """The fields that make the call what it is: ints, bools and strs by name."""
        return {name: getattr(self, name) for name in field_names(type(self))}

    @abstractmethod
    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Microseconds at the machine's stated peaks, one entry a resource (compute, memory, wire, …).

        A non-negative sum of them is the physical base of every time model, so each must scale as the resource does.
        """

    @abstractmethod
    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        """Finite numbers that a learnt correction on top of `terms` may look at."""

    def buffer_bytes(self) -> float:
        """Memory per rank of the buffers that it communicates."""
        return 0.0

    def resident_bytes(self) -> float:
        """Bytes of the other tensors that stay while it is timed, an estimate within a factor of two."""
        return 0.0

    def parts(self, phase: Phase) -> Sequence[Counted]:
        """The smaller calls this one is made of, for the ledger and where it was never sampled; () if it is atomic."""
        return ()


@cache
def field_names(cls: type[Call]) -> tuple[str, ...]:
    """The fields of a kind of call, in the order of their declaration."""
    return tuple(field.name for field in fields(cls))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """`count` times the phase of a call; the unit in which a plan is decomposed and costed."""

    call: Call
    phase: Phase
    count: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A call and those of its phases that are to be timed."""

    call: Call
    phases: tuple[Phase, ...]
