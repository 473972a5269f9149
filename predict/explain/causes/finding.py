"""Finding: one cause of a difference, in a word and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SHARE = 0.03
"""Share of the step from which on a difference is worth a sentence."""
SLOWER = 1.4
"""Ratio over what was expected from which on an operator, a rank or a link counts as slower."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One cause: a word for programs, a sentence for people, and the µs of the step that it costs."""

    cause: str
    text: str
    cost_us: float
    headings: frozenset[str] = frozenset()
    """Rows of the ledger whose difference it explains."""
