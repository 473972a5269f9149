"""`predict validate published` and `memory`: runs that others measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from predict.cli.options import log, print_json
from sampling.errors import UserError

if TYPE_CHECKING:
    from predict.validate.published.comparison import Comparison


def published(options: argparse.Namespace) -> None:
    from predict.validate.published.command import validate_published

    verdicts, calibration = validate_published(
        truth=options.truth,
        profile=options.profile,
        calibrate_on=options.calibrate_on,
        calibration=options.calibration,
        tell=log,
    )
    if options.widths or options.leave_out:
        (_widths if options.widths else _left_out)(verdicts, as_json=options.json)
        return
    if options.json:
        from predict.validate.published.summary import as_json

        print_json(as_json(verdicts) | ({"calibration": asdict(calibration)} if calibration else {}))
        return
    from predict.report.published.steps import published_text
    from predict.report.text import show

    show(published_text(verdicts, calibration))


def _widths(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.report.published.widths import widths_text
    from predict.report.text import show
    from predict.validate.learning.widths import learn_widths, widths_json

    learnt = learn_widths(verdicts)
    if as_json:
        print_json(widths_json(learnt))
    else:
        show(widths_text(learnt))


def _left_out(verdicts: Sequence[Comparison], *, as_json: bool) -> None:
    from predict.report.published.left_out import left_out_text
    from predict.report.text import show
    from predict.validate.learning.left_out import constants_json, judge_constants
    from sampling.progress import progress_display

    with progress_display("judging") as progress:
        found = judge_constants(verdicts, progress)
    if as_json:
        print_json(constants_json(found))
    else:
        show(left_out_text(found))


def memory(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of runs with a column peak_mem_gib")
    from predict.validate.memory.comparison import compare_memory
    from predict.validate.memory.summary import as_json
    from predict.validate.published.row import read_rows
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("counting") as progress:
        verdicts = compare_memory(rows, progress)
    if options.json:
        print_json(as_json(verdicts))
        return
    from predict.report.published.memory import published_memory_text
    from predict.report.text import show

    show(published_memory_text(verdicts))
