"""`python -m regressors`: fit time models to a profile's samples."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from regressors.accuracy.report import as_text, one_line
from regressors.train import Trained, train
from sampling.errors import ConfigError, UserError
from sampling.extras import naming_extras
from sampling.files.places import OWN_DATA_IN_WORDS, own_data
from sampling.progress import progress_display
from sampling.store.profiles import OWN, home_of, samples_directory


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, train, print the table; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        with naming_extras(), progress_display("fitting") as progress:
            trained = train(
                samples=samples_directory(options.profile, options.data),
                output=(options.data or own_data()) / "regressors" / options.profile,
                fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
                jobs=options.jobs,
                progress=progress,
                donor=_donor(options),
            )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _show(trained, brief=options.brief)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m regressors",
        description="Fit a time model to every sampled operator, collective and layer of a profile, and say how well each "
        "predicts shapes it has not seen. Writes bank.npz, report.md and report.json to DATA/regressors/PROFILE.",
        epilog="exit codes: 0 done, 2 wrong usage, 3 samples missing or damaged",
    )
    parser.add_argument("--profile", default=OWN, help="whose samples: a folder of DATA/samples (default: %(default)s)")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"folder of samples/ and regressors/ (default: {OWN_DATA_IN_WORDS})",
    )
    parser.add_argument(
        "--donor",
        metavar="PROFILE",
        help="a trained profile of another device whose models lend their times, where this one has few samples",
    )
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes to fit with (default: all cores)",
    )
    parser.add_argument("--brief", action="store_true", help="print one line; the tables are in report.md")
    return parser


def _donor(options: argparse.Namespace) -> Path | None:
    if not options.donor:
        return None
    if options.donor == options.profile:
        raise ConfigError(f"--donor: {options.donor!r} is the profile itself; name one of another device")
    return home_of(options.donor, options.data) / "regressors" / str(options.donor)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _show(trained: Trained, *, brief: bool) -> None:
    from rich.console import Console

    if brief:
        print(f"{one_line(trained.accuracy)} in {trained.path.parent / 'report.md'}")
        return

    # a file or pipe has no width to fit in
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(as_text(trained.accuracy), highlight=False)
    console.print(f"Wrote {trained.path}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
