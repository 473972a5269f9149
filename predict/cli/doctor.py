"""`predict doctor`: what is installed, which device this is, which profiles there are, and what has to be mended."""

import argparse
import math
from collections.abc import Iterator

from rich.table import Table

from predict.checkup import GIVES, Checkup, ProfileState, doctor
from predict.cli.options import add_data, add_json, print_answer
from predict.reports.printed import Renderable
from predict.reports.text import escape, first_that_fits, stacked
from sampling.errors import SamplesError
from sampling.files.faults import counted
from sampling.number_text import whole_percent

EXAMPLES = """\
examples:
  predict doctor
  predict doctor --json
  predict doctor --data data
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    found = doctor()
    print_answer(options, found, Checkup.to_json, _text)
    if found.faults:
        raise SamplesError(f"{counted(len(found.faults), 'fault')} to mend; the report states the command for each")


def _text(found: Checkup) -> Renderable:
    """Installation, machine and folders, each profile, and what has to be mended."""
    return stacked(*_lines(found), "", _profiles(found), "", *_verdict(found))


def _lines(found: Checkup) -> Iterator[str]:
    yield f"[bold]steptime {escape(found.version)}[/]   Python {found.python}"
    for extra, gives in GIVES.items():
        of_extra = [library for library in found.libraries if library.extra == extra]
        there = ", ".join(f"{library.name} {library.version}" for library in of_extra if library.version)
        missing = ", ".join(library.name for library in of_extra if not library.version)
        install = f"; missing: {missing} (`pip install {escape(f'steptime[{extra}]' if extra else 'steptime')}`)"
        yield f"  for {gives}: {escape(there) or 'none'}{install if missing else ''}"
    yield f"CPU   {escape(found.cpu)}, {counted(found.cores, 'core')}"
    yield f"GPU   {escape(found.gpu)}"
    for what, folder in found.folders.items():
        yield f"{what:13} {escape(folder)}"


def _profiles(found: Checkup) -> Renderable:
    """The profiles, with as much of each as the terminal has room for."""
    rows = [_cells(found, each) for each in found.profiles]

    def without(*left_out: str) -> Table:
        table = Table(title="profiles", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        names = [name for name in HEADINGS if name not in left_out]
        for name in names:
            table.add_column(name, justify="right" if name in ("rows", "set aside") else "left")
        for cells in rows:
            table.add_row(*(escape(cells[name]) for name in names))
        return table

    return first_that_fits(without(), without("whose", "set aside"), without("whose", "set aside", "device"))


HEADINGS = ("profile", "whose", "device", "rows", "set aside", "sampled", "fitted", "pace over time")


def _cells(found: Checkup, each: ProfileState) -> dict[str, str]:
    """A profile's text under each of HEADINGS."""
    here = each.name + (" (answers runs here)" if each.name == found.runs_here_use else "")
    on_this = " (this CPU)" if each.device == found.cpu else ""
    counts = ("not counted" if count is None else f"{count:,}" for count in (each.rows, each.set_aside))
    pace = "not read" if each.pace_half_width is None else f"±{whole_percent(math.expm1(each.pace_half_width))}"
    cells = (here, each.kind, f"{each.device}{on_this}", *counts, each.sampled or "no", each.fitted or "no", pace)
    return dict(zip(HEADINGS, cells, strict=True))


def _verdict(found: Checkup) -> list[str]:
    advice = [escape(found.advice)] if found.advice else []
    if not found.faults:
        return [*advice, "Nothing is missing, damaged or stale."]
    return [
        *advice,
        "[bold red]To mend:[/]",
        *(f"  {escape(fault)}" for fault in found.faults),
    ]
