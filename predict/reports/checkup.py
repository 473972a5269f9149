"""The checkup for a reader in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape

from predict.checkup import GIVES, Checkup

if TYPE_CHECKING:
    from rich.console import RenderableType


def checkup_text(found: Checkup) -> RenderableType:
    """Installation, machine and folders, each profile, and what has to be mended."""
    from rich.console import Group

    return Group(*_lines(found), "", _profiles(found), "", *_verdict(found))


def _lines(found: Checkup) -> Iterator[str]:
    yield f"[bold]steptime {escape(found.version)}[/]   Python {found.python}"
    for extra, gives in GIVES.items():
        of_extra = [library for library in found.libraries if library.extra == extra]
        there = ", ".join(f"{library.name} {library.version}" for library in of_extra if library.version)
        missing = ", ".join(library.name for library in of_extra if not library.version)
        install = f"; missing: {missing} (`pip install {escape(f'steptime[{extra}]' if extra else 'steptime')}`)"
        yield f"  for {gives}: {escape(there) or 'none'}{install if missing else ''}"
    yield f"CPU   {escape(found.cpu)}, {found.cores} cores"
    yield f"GPU   {escape(found.gpu)}"
    for what, folder in found.folders.items():
        yield f"{what:13} {escape(folder)}"


def _profiles(found: Checkup) -> RenderableType:
    from rich.table import Table

    table = Table(title="profiles", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("profile", "whose", "device", "rows", "set aside", "sampled", "fitted"):
        table.add_column(name, justify="right" if name in ("rows", "set aside") else "left")
    for each in found.profiles:
        here = each.name + (" (answers runs here)" if each.name == found.runs_here_use else "")
        on_this = " (this CPU)" if each.device == found.cpu else ""
        counts = ("not counted" if count is None else f"{count:,}" for count in (each.rows, each.set_aside))
        cells = (here, each.kind, f"{each.device}{on_this}", *counts, each.sampled or "no", each.fitted or "no")
        table.add_row(*map(escape, cells))
    return table


def _verdict(found: Checkup) -> list[str]:
    advice = [escape(found.advice)] if found.advice else []
    if not found.faults:
        return [*advice, "Nothing is missing, damaged or stale."]
    return [
        *advice,
        "[bold red]To mend:[/]",
        *(f"  {escape(fault)}" for fault in found.faults),
    ]
