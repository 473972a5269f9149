"""Completeness of a published row: the class in which its prediction is judged, by how much of the run the row states."""

from __future__ import annotations

from collections.abc import Iterator

from predict.validation.published.row import PublishedRow
from predict.validation.published.software import framework_of

COMPLETE = "complete"
VOCABULARY_UNPUBLISHED = "vocabulary unpublished"
RECOMPUTE_UNPUBLISHED = "recompute unpublished"
INCOMPLETE = "structurally incomplete"
CLASSES = tuple(
    f"{kind}, {stated}"
    for kind in ("dense", "MoE")
    for stated in (COMPLETE, VOCABULARY_UNPUBLISHED, RECOMPUTE_UNPUBLISHED, INCOMPLETE)
)
NEVER_INTERLEAVED = ("gpt-neox", "megatron-deepspeed")
"""Frameworks on DeepSpeed's pipeline, which has one chunk per rank, so that a blank `vpp` leaves nothing open."""


def completeness(row: PublishedRow, *, sparse: bool) -> str:
    """The class of a row whose model is `sparse` or dense: the first that holds: INCOMPLETE if a setting is open that shapes the schedule or what a rank holds,
    RECOMPUTE_UNPUBLISHED, VOCABULARY_UNPUBLISHED (GPT-2's is taken), COMPLETE.
    """
    if any(structural_gaps(row, sparse=sparse)):
        return INCOMPLETE
    if not row.text("recompute"):
        return RECOMPUTE_UNPUBLISHED
    sized = row.text("vocab") or not row.text("layers")  # a model without sizes is one of configs/models
    return COMPLETE if sized else VOCABULARY_UNPUBLISHED


def structural_gaps(row: PublishedRow, *, sparse: bool) -> Iterator[str]:
    """The columns left blank without which the plan or the batch is a guess; `sparse` for a mixture, be it so by its model's name."""
    yield from (column for column in ("tp", "pp") if not row.text(column))
    if (row.number("pp") or 1) > 1 and not row.text("vpp") and framework_of(row) not in NEVER_INTERLEAVED:
        yield "vpp"
    if sparse and not row.text("ep"):
        yield "ep"
    if not row.text("grad_accum"):
        yield from (column for column in ("mbs", "gbs") if not row.text(column))
    elif not (row.text("mbs") or row.text("gbs")):
        yield "mbs"
