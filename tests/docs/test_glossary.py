"""The glossary and the help of `predict one-batch` name each entry of the ledger that is no operator."""

from __future__ import annotations

from predict.cli import one_batch
from predict.rank.exchanges import FSDP
from predict.step import breakdown
from predict.step.breakdown import GLUE, HOST
from predict.workload.layer import ACCUMULATION, RECOMPUTE
from tests.docs.pages import ROOT

ENTRIES = (
    *breakdown.NOT_COMPUTE,
    GLUE,
    HOST,
    breakdown.STRAGGLERS,
    breakdown.OVERHEAD,
    RECOMPUTE,
    ACCUMULATION,
    FSDP,
    "cp",
    "ep",
)


def test_every_entry_of_the_ledger_is_explained() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    explained = glossary.partition("## Entries of the ledger")[2]
    words = one_batch.DESCRIPTION.replace(",", " ").replace(":", " ").replace(";", " ").split()
    for entry in ENTRIES:
        assert f"| {entry} | " in explained, entry
        assert entry in words, entry
