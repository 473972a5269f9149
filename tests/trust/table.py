"""Tables of what was tried, printed, and kept in docs/explanation/trust.md between `<!-- NAME -->` and `<!-- end -->`."""

import argparse
import datetime
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "trust.md"


def command(
    description: str | None, *, cases: int, seed: int = 0, part: str = "", parts: Collection[str] = ()
) -> argparse.ArgumentParser:
    """The options that every one of these commands has; `part` names the one that picks some of the `parts`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=cases, help=f"how many to try (default: {cases})")
    parser.add_argument("--seed", type=int, default=seed, help="of the first case; the others count on from it")
    parser.add_argument("--minutes", type=float, default=60.0, help="no case begins after this time (default: 60)")
    if part:
        parser.add_argument(f"--{part}", choices=parts, action="append", help=f"this {part} alone; may be repeated")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="counts of earlier runs, from which this one goes on"
    )
    parser.add_argument("--keep", action="store_true", help=f"write the table into {PAGE.name}")
    return parser


def counts_so_far(resume: Path | None) -> dict[str, Any]:
    """What earlier runs tried, by kind; nothing without a file of them."""
    found: dict[str, Any] = json.loads(resume.read_text()) if resume and resume.exists() else {}
    return found


def write_counts(resume: Path | None, counts: dict[str, Any]) -> None:
    if resume:
        resume.write_text(json.dumps(counts, indent=1))


def show(name: str, headings: Sequence[str], rows: Sequence[Sequence[object]], note: str, *, keep: bool) -> None:
    """Print a table and, with `keep`, put it into the page with its date."""
    lines = [" | ".join(headings), "|".join(["---", *["--:"] * (len(headings) - 1)])]
    lines += [" | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    text = "\n".join(f"| {line} |" for line in lines) + f"\n\n{note}"
    print(text)
    if keep:
        text += f" ({datetime.datetime.now(datetime.UTC):%Y-%m-%d})"
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        written, found = pattern.subn(lambda match: f"{match[1]}{text}\n{match[2]}", PAGE.read_text())
        if found != 1:
            raise SystemExit(f"{PAGE}: {found} blocks are named {name!r}; keep exactly one")
        PAGE.write_text(written)
