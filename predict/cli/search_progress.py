"""Progress of `predict search` on stderr."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from predict.cli.options import log
from predict.plan_search.search import Found, in_words
from predict.plan_search.whole_search import FirstAnswer, Listener
from sampling.files.faults import counted
from sampling.number_text import duration
from sampling.progress import Progress, progress_display


@contextmanager
def on_stderr() -> Iterator[Listener]:
    """A listener that writes lines, and while plans are priced shows their progress."""
    with ExitStack() as opened:
        yield _OnStderr(opened=opened)


@dataclass(kw_only=True)
class _OnStderr(Listener):
    opened: ExitStack

    @cached_property
    def progress(self) -> Progress:
        """The display, opened when the first plans are priced: its time left is that of pricing."""
        return self.opened.enter_context(progress_display("search"))

    def legal(self, plans: int, legal: int) -> None:
        log(f"{counted(plans, 'plan')}, {legal:,} legal")

    def first(self, first: FirstAnswer) -> None:
        chosen = f" with {in_words(first.settings)}" if first.settings else ", the config's own plan"
        log(f"first answer: {duration(first.step_us)} per step{chosen}")

    def candidates(self, fit: int, seconds: float) -> None:
        log(f"{fit:,} may fit in memory" + (f"; about {math.ceil(seconds)} s left" if fit else ""))

    def taken_over(self, estimates: int) -> None:
        log(f"--save: {estimates:,} estimates of an earlier search are taken over")

    def round(self, found: Found) -> None:
        enough = len(found.ranked) >= found.top  # before that, no plan's floor rules it out
        total = max(found.candidates, found.priced) if enough else found.priced + found.top
        self.progress(found.priced, total, _best_in_words(found))


def _best_in_words(found: Found) -> str:
    if not found.best:
        return "none that fits so far"
    best = found.best[0]
    rate = found.priced / found.seconds if found.seconds else 0.0
    settings = found.surveys[best.survey].space.settings(best.outcome.number)
    return f"{rate:.0f} plans/s, best so far {duration(best.outcome.step_us)}: {in_words(settings)}"
