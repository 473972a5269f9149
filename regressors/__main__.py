"""`python -m regressors`: learn how long each operator and collective takes from a profile's samples."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from regressors.report import as_table, summary
from regressors.train import Progress, Trained, train
from sampling.errors import UserError
from sampling.store import DATA, samples_directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, train, print the table; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with _progress() as progress:
            trained = train(
                samples=samples_directory(options.profile, options.data),
                output=options.data / "regressors" / options.profile,
                fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
                jobs=options.jobs,
                progress=progress,
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _show(trained, options.profile)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m regressors",
        description="Fit a time model to every sampled operator, collective and layer of a profile, and say how well each "
        "predicts shapes it has not seen. Writes bank.npz, report.md and report.json to DATA/regressors/PROFILE.",
        epilog="exit codes: 0 done, 2 wrong usage, 3 samples missing or damaged",
    )
    parser.add_argument(
        "--profile", default="this-machine", help="whose samples: a folder of DATA/samples (default: %(default)s)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA,
        metavar="DIR",
        help="folder of samples/ and regressors/ (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes to fit with (default: %(default)s, all cores)",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, else a line now and then; both on stderr."""
    if not sys.stderr.isatty():
        yield _plain_progress(time.monotonic())
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("fitting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _plain_progress(start: float) -> Progress:
    def report(done: int, total: int, name: str) -> None:
        if done == total or done % max(1, total // 10) == 0:
            left = (time.monotonic() - start) / done * (total - done)
            print(f"fitted {done} of {total}, {left:.0f} s left: {name}", file=sys.stderr)

    return report


def _show(trained: Trained, profile: str) -> None:
    from rich.console import Console

    # a file or pipe has no width to fit in
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(as_table(trained.reports, profile))
    for line in summary(trained.reports):
        console.print(line, highlight=False)
    console.print(f"Wrote {trained.path}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
