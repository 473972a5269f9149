"""Completeness of a published row: the class in which its prediction is judged, by how much of the run the row states."""

from __future__ import annotations

from collections.abc import Iterator

from predict.validate.published.row import PublishedRow

COMPLETE = "complete"
RECOMPUTE_UNPUBLISHED = "recompute unpublished"
INCOMPLETE = "structurally incomplete"
CLASSES = tuple(
    f"{kind}, {stated}" for kind in ("dense", "MoE") for stated in (COMPLETE, RECOMPUTE_UNPUBLISHED, INCOMPLETE)
)


def completeness(row: PublishedRow) -> str:
    """COMPLETE, RECOMPUTE_UNPUBLISHED, or INCOMPLETE where a setting is open that shapes the schedule or what a rank holds.

    A vocabulary that is not stated counts as none of these: tables of GPT-like models mean GPT-2's.
    """
    if any(structural_gaps(row)):
        return INCOMPLETE
    return COMPLETE if row.text("recompute") else RECOMPUTE_UNPUBLISHED


def structural_gaps(row: PublishedRow) -> Iterator[str]:
    """The columns left blank without which the plan or the batch is a guess."""
    yield from (column for column in ("tp", "pp") if not row.text(column))
    if (row.number("pp") or 1) > 1 and not row.text("vpp"):
        yield "vpp"
    if row.number("experts") and not row.text("ep"):
        yield "ep"
    if not row.text("grad_accum"):
        yield from (column for column in ("mbs", "gbs") if not row.text(column))
    elif not (row.text("mbs") or row.text("gbs")):
        yield "mbs"
