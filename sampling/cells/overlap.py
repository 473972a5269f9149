"""Compute and communication beside each other: how much slower each gets, from samples.

A GEMM and a collective share a GPU's memory bandwidth and some of its cores, and on a CPU the cores themselves. `Overlap`
times either while the other is busy on every rank; `slow_down` sets that against the times of each alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sampling.arithmetic.operator import physics_features
from sampling.call import Call, Counted, Phase
from sampling.catalogue import make_call, register
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, Outside, ReduceScatter, SendRecv
from sampling.hardware.cluster import Cluster
from sampling.operators.gemm import Gemm

if TYPE_CHECKING:
    import torch

    from sampling.call import Workload

KINDS: tuple[type[Collective], ...] = (AllReduce, AllGather, ReduceScatter, AllToAll, SendRecv)
REPEATS = 8
"""GEMMs or collectives in a timed interval: long enough for starting and stopping the clock not to count."""


@register
@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap(Call):
    """GEMMs of one shape and collectives of another on the same ranks; each phase is the time of one of the two.

    Its terms are those of the one that is timed, and its parts what it would be if the two did not hinder each other.
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
    def compute(self) -> Gemm:
        return Gemm(dtype=self.dtype, m=self.m, n=self.n, k=self.k)

    @property
    def communication(self) -> Collective:
        fields = {"size_bytes": self.size_bytes, "ranks": self.ranks, "ranks_per_node": self.ranks_per_node}
        call = make_call(self.collective, fields)
        assert isinstance(call, Collective)
        return call

    def alone(self, phase: Phase) -> Call:
        """The one that the phase times."""
        return self.compute if phase == "compute_beside" else self.communication

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return (Counted(call=self.alone(phase), phase="forward"),)

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return self.alone(phase).terms("forward", cluster)

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        features = {f"is_{kind.NAME}": float(self.collective == kind.NAME) for kind in KINDS}
        features |= physics_features(self.compute, "forward", cluster)
        for name, value in self.communication.terms("forward", cluster).items():
            features[f"log2_{name}_us"] = math.log2(value + 1e-3)
        return features

    def build(self, device: torch.device) -> Workload:
        from sampling.torch_work.overlap_workload import OverlapWorkload
        from sampling.torch_work.process_groups import present

        group = present().own(self.communication)
        return Outside() if group is None else OverlapWorkload(self, device, group)
