"""The three models of a module's time: unfused, fused, fused and prefetched; of the whole graph, and as the sum over its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from predict.bounds.device import Device

Bottleneck = Literal["compute", "memory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Multiply-accumulates and bytes that go together; `other_ops` are scalar operations outside the matrix units."""

    macs: float
    size_bytes: float
    other_ops: float = 0.0

    @property
    def intensity(self) -> float:
        """Multiply-accumulates per byte."""
        return self.macs / self.size_bytes if self.size_bytes else 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            macs=self.macs + other.macs,
            size_bytes=self.size_bytes + other.size_bytes,
            other_ops=self.other_ops + other.other_ops,
        )


NOTHING = Work(macs=0.0, size_bytes=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """The time of some work on a device; `cycles` may exceed both resources' where it is a sum over parts."""

    work: Work
    compute_cycles: float
    vector_cycles: float
    """Cycles of the scalar operations, for information: they are not in the time."""
    memory_cycles: float
    cycles: float
    time_us: float

    @property
    def bottleneck(self) -> Bottleneck:
        return "compute" if self.compute_cycles >= self.memory_cycles else "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The three models by one rule, each no slower than the one before."""

    unfused: Roofline
    fused: Roofline
    fused_prefetched: Roofline


def whole(work: Work, device: Device, precision: str) -> Roofline:
    """One maximum over sums: everything overlaps everything."""
    return _roofline(work, device, precision, None)


def one_after_another(parts: Iterable[Work], device: Device, precision: str) -> Roofline:
    """A maximum for each part, added up: a part overlaps only itself."""
    every = tuple(parts)
    total = sum(every, NOTHING)
    cycles = sum(_longest(part, device, precision) for part in every)
    return _roofline(total, device, precision, cycles)


def _longest(work: Work, device: Device, precision: str) -> float:
    compute = device.cycles_of(work.macs, precision) if work.macs else 0.0
    return max(compute, device.cycles_to_move(work.size_bytes))


def _roofline(work: Work, device: Device, precision: str, cycles: float | None) -> Roofline:
    compute = device.cycles_of(work.macs, precision) if work.macs else 0.0
    memory = device.cycles_to_move(work.size_bytes)
    vector = work.other_ops / device.vector_macs_per_cycle if device.vector_macs_per_cycle else 0.0
    taken = max(compute, memory) if cycles is None else cycles
    return Roofline(
        work=work,
        compute_cycles=compute,
        vector_cycles=vector,
        memory_cycles=memory,
        cycles=taken,
        time_us=device.time_us(taken),
    )
