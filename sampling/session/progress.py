"""A progress bar with the time left, on stderr: live in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sampling.session.session import Progress

LINE_EVERY_S = 15.0


@contextmanager
def progress_display() -> Iterator[Callable[[Progress], None]]:
    """Yields the function that shows a Progress."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, int] = {}

        def tell(progress: Progress) -> None:
            key = f"{progress.label}:{progress.wanted}"
            if key not in tasks:
                tasks[key] = bar.add_task(f"sampling, {progress.label}", total=progress.wanted, left="")
            bar.update(tasks[key], completed=progress.done, left=f"{progress.left_s:.0f} s left at most")  # type: ignore[arg-type]

        yield tell


def _lines() -> Callable[[Progress], None]:
    last = 0.0

    def tell(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > LINE_EVERY_S:
            last = now
            print(
                f"sampling, {progress.label}: {progress.done} of {progress.wanted} rows, {progress.left_s:.0f} s left at most",
                file=sys.stderr,
                flush=True,
            )

    return tell
