"""Progress of a search or sweep over combinations, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from predict.cli.options import log
from sampling.files.faults import counted
from sampling.progress import progress_display


@contextmanager
def on_stderr(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields the function that is told how many combinations are predicted, of how many."""
    with progress_display(label) as show:

        def progress(done: int, of: int) -> None:
            if not done:
                log(f"{counted(of, 'combination')}, each is predicted")
            show(done, of, "")

        yield progress
