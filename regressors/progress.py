"""Progress of fits: a bar on a terminal, else a line now and then; both on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int, str], None]
"""Told how many are done, of how many, and the last one's name."""


@contextmanager
def progress_display(verb: str) -> Iterator[Progress]:
    """A bar on a terminal, else a line now and then; both on stderr."""
    if not sys.stderr.isatty():
        yield _plain_progress(verb, time.monotonic())
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(verb),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _plain_progress(verb: str, start: float) -> Progress:
    def report(done: int, total: int, name: str) -> None:
        if done == total or done % max(1, total // 10) == 0:
            left = (time.monotonic() - start) / done * (total - done)
            print(f"{verb}: {done} of {total}, {left:.0f} s left: {name}", file=sys.stderr)

    return report
