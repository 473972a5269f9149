"""The memory book: the estimate of `predict memory`, as terms that add up to the worst rank's peak."""

from __future__ import annotations

from dataclasses import dataclass

from predict.memory.estimate import MemoryEstimate
from predict.memory.rank_memory import TERMS


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBook:
    """The memory of every pipeline rank; the worst decides."""

    estimate: MemoryEstimate

    @property
    def terms_bytes(self) -> dict[str, float]:
        """Bytes of the worst rank's peak by term."""
        return {term: getattr(self.estimate.worst, term) for term in TERMS}
