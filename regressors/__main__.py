"""`python -m regressors`: fit time models to a profile's samples."""

from __future__ import annotations

from sampling import early_interrupt  # noqa: F401

# isort: split
import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sampling.arguments import Parser
from sampling.command_line import exit_code_of, log, show
from sampling.errors import ConfigError
from sampling.files.faults import did_you_mean
from sampling.files.places import OWN_DATA_IN_WORDS, SHIPPED_DATA, own_data

if TYPE_CHECKING:
    from regressors.train import Trained

AUTO = "auto"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, train, print the table; returns the exit code. What takes long to import is imported in it, where Ctrl-C ends the command in
    words."""
    return exit_code_of(lambda: _run(parser().parse_args(arguments)))


def _run(options: argparse.Namespace) -> int:
    from regressors.train import train
    from sampling.progress import progress_display
    from sampling.store.profiles import samples_directory

    wanted = _wanted(options.model)
    if options.jobs < 1:
        raise ConfigError(f"--jobs: {options.jobs} is not a positive number; give 1 or more")
    home = _home(options)
    with progress_display("fitting") as progress:
        trained = train(
            samples=samples_directory(options.profile, home),
            output=home / "regressors" / options.profile,
            fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
            jobs=options.jobs,
            progress=progress,
            donor=_donor(options),
            wanted=wanted,
        )
    _show(trained, options)
    return 0


def parser() -> argparse.ArgumentParser:
    from regressors.models.candidates import CANDIDATES
    from sampling.store.profiles import OWN

    parser = Parser(
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
        "--model",
        default=AUTO,
        metavar="KIND",
        help=f"{AUTO}: for every operator the kind that errs least on rows held out; or one kind for all of them: "
        f"{', '.join(CANDIDATES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes to fit with (default: all cores)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--brief", action="store_true", help="print one line; the tables are in report.md")
    shown.add_argument("--json", action="store_true", help="print the content of report.json")
    return parser


def _wanted(model: str) -> Sequence[str]:
    """The kinds that --model asks for; ConfigError for any other name."""
    from regressors.models.candidates import CANDIDATES

    if model == AUTO:
        return CANDIDATES
    if model not in CANDIDATES:
        known = (AUTO, *CANDIDATES)
        raise ConfigError(f"--model: {model!r} is none of {', '.join(known)}{did_you_mean(model, known) or '.'}")
    return (model,)


def _home(options: argparse.Namespace) -> Path:
    """The folder of the profile's samples/ and of the regressors/ to write, which is printed where it is a copy of shipped rows."""
    from sampling.store.profiles import copy_shipped, is_shipped

    if options.data:
        return Path(options.data)
    if not is_shipped(options.profile):
        return own_data()
    home = copy_shipped(options.profile)
    use = f"; predict answers from them with --data {home}" if own_data() == SHIPPED_DATA else ""
    log(
        f"note: the rows of {options.profile} ship with the project, whose files stay as they are: a copy of them is fitted in "
        f"{home}{use}; --data {SHIPPED_DATA} refits the shipped models themselves"
    )
    return home


def _donor(options: argparse.Namespace) -> Path | None:
    from sampling.store.profiles import home_of

    if not options.donor:
        return None
    if options.donor == options.profile:
        raise ConfigError(f"--donor: {options.donor!r} is the profile itself; name one of another device")
    return home_of(options.donor, options.data) / "regressors" / str(options.donor)


def _show(trained: Trained, options: argparse.Namespace) -> None:
    from regressors.accuracy.report import as_text, one_line

    if options.json:
        print(json.dumps(trained.accuracy, indent=1))
        return
    if options.brief:
        print(f"{one_line(trained.accuracy)} in {trained.path.parent / 'report.md'}")
        return

    show(as_text(trained.accuracy), piped_width=200)
    print(f"Wrote {trained.path}")


if __name__ == "__main__":
    sys.exit(main())
