"""A peak as a memory benchmark of a reduced run restores it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from predict.memory.estimate import MemoryEstimate, Verdict, verdict_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """Of the run's fullest rank, in bytes; `terms` are what `predict.measure.benchmark.memory_benchmark.restore` tells of it."""

    point_bytes: float
    upper_bytes: float
    terms: Mapping[str, float]

    @classmethod
    def on_device(cls, point: float, upper: float, terms: Mapping[str, float], *, memory: MemoryEstimate) -> Restored:
        """With what lies outside of the allocator, which a benchmark's tensors do not show; the upper bound is the benchmark's
        own, or the margin and widths of the simulated estimate where those are wider."""
        device = memory.worst.device
        wide = math.hypot(memory.safety_margin * (point + device), memory.worst.width)
        return cls(
            point_bytes=point + device,
            upper_bytes=max(upper + device, point + device + wide),
            terms={**terms, "device_bytes": device},
        )

    def verdict(self, capacity_bytes: float) -> Verdict:
        return verdict_of(self.point_bytes, self.upper_bytes, capacity_bytes)

    def sizes(self) -> Iterator[tuple[str, float]]:
        """The terms that are bytes, without what has none."""
        return ((name, of) for name, of in self.terms.items() if name.endswith("_bytes") and of > 0)

    def to_json(self, capacity_bytes: float) -> dict[str, Any]:
        return {
            "point_bytes": self.point_bytes,
            "upper_bytes": self.upper_bytes,
            "capacity_bytes": capacity_bytes,
            "headroom_bytes": capacity_bytes - self.point_bytes,
            "verdict": self.verdict(capacity_bytes),
            "terms": dict(self.terms),
        }
