"""Activations of the units of a run's chunks, each distinct one counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from predict.memory.held import Unit
from predict.memory.memory_profile import MemoryProfile
from predict.model.layer_kinds import LayerKind
from predict.run.training_run import TrainingRun
from predict.workload.rank.share import RankShare


class Activations(Protocol):
    """What of one microbatch a layer keeps by component, and what it takes beside that while it runs; bytes."""

    @property
    def kept(self) -> Mapping[str, float]: ...
    @property
    def forward_working_bytes(self) -> float: ...
    @property
    def backward_working_bytes(self) -> float: ...
    @property
    def total(self) -> float: ...


class Source(Protocol):
    """`predict.memory.activations`, or a stand-in for it."""

    def layer_activations(
        self, rank: RankShare, kind: LayerKind, profile: MemoryProfile, *, recompute: str
    ) -> Activations: ...
    def embedding_activations(self, rank: RankShare, profile: MemoryProfile) -> Activations: ...
    def head_activations(self, rank: RankShare, profile: MemoryProfile) -> Activations: ...
    def joining_activations(self, rank: RankShare, profile: MemoryProfile) -> Activations: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitActivations:
    """Of one unit and one microbatch, in bytes; `components` are what `kept_bytes` is made of."""

    kept_bytes: float
    forward_working_bytes: float
    backward_working_bytes: float
    components: Mapping[str, float]


SHARED_BY_LAYERS = ("rope",)
"""Components that the layers of one forward have in common: one storage, which each of them holds."""


def without_shared(one: UnitActivations) -> UnitActivations:
    """Of a layer after the first."""
    shared = sum(one.components.get(name, 0.0) for name in SHARED_BY_LAYERS)
    return replace(one, kept_bytes=one.kept_bytes - shared)


class ActivationsOfUnits:
    def __init__(self, run: TrainingRun, profile: MemoryProfile, source: Source | None = None) -> None:
        self._rank, self._profile = RankShare(run=run), profile
        self._source = source or _own_source()
        self._known: dict[tuple[str, LayerKind | None, str], UnitActivations] = {}

    def of_unit(self, unit: Unit) -> UnitActivations:
        key = unit.role, unit.kind, unit.recompute
        if key not in self._known:
            self._known[key] = self._count(unit)
        return self._known[key]

    def _count(self, unit: Unit) -> UnitActivations:
        found = self._asked(unit)
        return UnitActivations(
            kept_bytes=found.total,
            forward_working_bytes=found.forward_working_bytes,
            backward_working_bytes=found.backward_working_bytes,
            components=found.kept,
        )

    def _asked(self, unit: Unit) -> Activations:
        rank, profile, source = self._rank, self._profile, self._source
        if unit.role == "embedding":
            return source.embedding_activations(rank, profile)
        if unit.role == "joining":
            return source.joining_activations(rank, profile)
        if unit.kind is not None:
            return source.layer_activations(rank, unit.kind, profile, recompute=unit.recompute)
        return source.head_activations(rank, profile)


def _own_source() -> Source:
    from predict.memory import activations

    return activations
