"""Progress of long work on stderr, with the time left: a bar in a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from sampling.command_line import log
from sampling.number_text import count

Progress = Callable[[int, int, str], None]
"""Called with how many items are done, of how many, and the name of the latest one ('' if it has none)."""
LINE_EVERY_S = 15.0


def silent(done: int, total: int, name: str) -> None:
    """Progress that shows nothing."""


@contextmanager
def progress_display(label: str, budget_s: float | None = None) -> Iterator[Progress]:
    """Yields the function that shows progress. The time left is the budget's, or estimated from the pace so far."""
    start = time.monotonic()

    def time_left(done: int, total: int) -> str:
        elapsed_s = time.monotonic() - start
        if budget_s is not None:
            return (
                f"{count(budget_s - elapsed_s)} s left at most" if elapsed_s < budget_s else "its time is over, ending"
            )
        return f"{count(elapsed_s / done * (total - done))} s left" if done else ""

    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield _lines(label, time_left)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{time_left(done, total)}  {name}")

        yield show


def _lines(label: str, time_left: Callable[[int, int], str]) -> Progress:
    last_s, last_done = time.monotonic(), 0

    def show(done: int, total: int, name: str) -> None:
        nonlocal last_s, last_done
        if time.monotonic() - last_s < LINE_EVERY_S and (done < total or done == last_done):
            return
        last_s, last_done = time.monotonic(), done
        parts = (f"{label}: {done} of {total}", time_left(done, total), name)
        log(", ".join(part for part in parts if part))

    return show
