"""Progress of a search or sweep over combinations, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from predict.cli.options import log
from sampling.files.faults import counted
from sampling.progress import progress_display


@contextmanager
def on_stderr(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with the number of combinations that are predicted, and with that of all."""
    with progress_display(label) as show:

        def progress(done: int, of: int) -> None:
            if not done:
                log(f"{counted(of, 'combination')}, all of them predicted")
            show(done, of, "")

        yield progress
