"""CustomAllReduce: the all-reduce of small buffers that serving engines bring along, in one kernel over a node's links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sampling.collectives.kinds import AllReduce


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomAllReduce(AllReduce):
    """Sum over ranks of one node that read each other's memory, as vLLM's kernel does it (csrc/custom_all_reduce.cuh).

    It is not registered, so no sampler times it: that takes the library of the engine.
    """

    NAME: ClassVar[str] = "custom_all_reduce"
    COLUMNS: ClassVar[tuple[str, ...]] = ()
    HEADING: ClassVar[str] = "all_reduce"
