"""Doubtful records: runs that are kept, but neither judge predictions nor tell drift until another run bears them out.

A log of another run, or steps that were disturbed, would hide a change and spoil the mean error; a cluster that really became that much
slower shows it by its next run.
"""

from __future__ import annotations

from collections.abc import Sequence

from predict.own_runs.records import Record
from predict.own_runs.repeats import are_repeats


def standing_doubts(records: Sequence[Record]) -> list[str]:
    """Why each record does not count; empty for one that does, or that another one of its configuration bears out as a repeat."""
    return ["" if _borne_out(one, records) else one.doubt for one in records]


def _borne_out(one: Record, records: Sequence[Record]) -> bool:
    return any(
        other is not one
        and other.described == one.described
        and are_repeats((other.measured.step_us, one.measured.step_us))
        for other in records
    )
