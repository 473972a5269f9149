"""A GEMM and a collective at the same time, which slow each other down.

They share a GPU's memory bandwidth and some of its cores, and on a CPU the cores themselves. Divided by the times of each
alone, the times of the two phases are the slow-down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sampling.arithmetic.operator import physics_features
from sampling.call import Call, Counted, Phase, make_call, register
from sampling.collectives.kinds import KINDS, Collective
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import Gemm

REPEATS = 8
"""GEMMs or collectives in a timed interval, long enough for the start and stop of the clock to be negligible."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap(Call):
    """GEMMs of one shape and collectives of another on the same ranks; each phase is the time of one of the two.

    The terms and the part of a phase are those of the call that it times, as if the other did not slow it down.
    """

    NAME: ClassVar[str] = "overlap"
    PHASES: ClassVar[tuple[Phase, ...]] = ("compute_beside", "communication_beside")
    DONE_PER_RUN: ClassVar[int] = REPEATS

    dtype: str
    m: int
    n: int
    k: int
    collective: str
    size_bytes: int
    ranks: int
    ranks_per_node: int

    @property
    def group_size(self) -> int:
        return self.ranks

    @property
    def gemm(self) -> Gemm:
        return Gemm(dtype=self.dtype, m=self.m, n=self.n, k=self.k)

    @property
    def communication(self) -> Collective:
        fields = {"size_bytes": self.size_bytes, "ranks": self.ranks, "ranks_per_node": self.ranks_per_node}
        call = make_call(self.collective, fields)
        assert isinstance(call, Collective)
        return call

    def buffer_bytes(self) -> float:
        return self.communication.buffer_bytes()

    def timed_in(self, phase: Phase) -> Call:
        """The call that the phase times."""
        return self.gemm if phase == "compute_beside" else self.communication

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=self.timed_in(phase), phase="forward"),)

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return self.timed_in(phase).terms("forward", cluster)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        features = {f"is_{kind.NAME}": float(self.collective == kind.NAME) for kind in KINDS}
        features |= physics_features(self.gemm, "forward", cluster)
        for name, value in self.communication.terms("forward", cluster).items():
            features[f"log2_{name}_us"] = math.log2(value + 1e-3)
        return features
