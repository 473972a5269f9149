"""Times between the tokens of an answer (ITL), as counts of tokens by the length of the gap before them: bins a percent wide."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from regressors.features.arrays import Floats

PER_E = 100
"""Bins to a factor e; the first one begins at 1 µs."""
BINS = 21 * PER_E
"""Up to 22 minutes."""


def gap_bin(gap_us: float) -> int:
    """The bin of a gap; plain enough for numba to compile."""
    return max(0, min(BINS - 1, int(PER_E * log(max(gap_us, 1.0)))))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenGaps:
    """The gaps between the tokens of all requests. Tokens that drafts add to a step come with it, so they count as one; the wait of a
    request that was preempted is not among them."""

    counts: Floats
    """Tokens by bin."""
    client_us: float = 0.0
    """Time per token on the way to the client."""

    @staticmethod
    def of_steps(times_us: Floats, tokens: Floats) -> TokenGaps:
        """Those of steps that took so long, each of which made so many tokens."""
        bins = [gap_bin(float(time)) for time in times_us]
        return TokenGaps(counts=np.bincount(bins, weights=tokens, minlength=BINS).astype(np.float64))

    @property
    def mean_us(self) -> float:
        """Mean gap; 0 where no answer has a second token."""
        total = float(self.counts.sum())
        return float((self.counts * _middles_us()).sum() / total) + self.client_us if total else 0.0

    def percentile_us(self, percent: float) -> float:
        """The gap that so many percent of the tokens do not exceed; 0 where there is none."""
        total = float(self.counts.sum())
        if not total:
            return 0.0
        # the least gap is that of the first bin with a token in it
        place = int(np.searchsorted(np.cumsum(self.counts), max(percent / 100, 1e-9) * total))
        return float(_middles_us()[min(place, BINS - 1)]) + self.client_us


def _middles_us() -> Floats:
    middles: Floats = np.exp((np.arange(BINS) + 0.5) / PER_E)
    return middles
