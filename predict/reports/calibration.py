"""A calibration in a terminal and as JSON: its terms with their widths, and the runs that they rest on."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from predict.reports.printed import Renderable
from predict.reports.text import figures_table, stacked
from predict.run.calibration_terms import NINETY, TERMS, Posterior, bounds, prior_deviations
from predict.serialise import version_of
from sampling.number_text import duration, multiple, percent, significant


def calibration_json(posterior: Posterior, place: Path | None) -> dict[str, Any]:
    """The file's content in plain values but for the runs' descriptions, and where it lies; null for one that is never written."""
    widths = dict(posterior.widths) if posterior.runs else None
    content = asdict(replace(posterior, runs=tuple(replace(one, described=None) for one in posterior.runs)))
    for one in content["runs"]:
        del one["described"]
    return {
        "version": version_of("calibrate"),
        "file": str(place) if place else None,
        **content,
        "widths_log": widths,
        "bounds": bounds(),
    }


def calibration_report(posterior: Posterior) -> Renderable:
    terms = figures_table("factors on times", ("term",), ("fitted", "90 %", "before any run"))
    before = dict(zip(TERMS, prior_deviations(posterior.shared_error), strict=True))
    for name, value in asdict(posterior.terms).items():
        least, most = bounds()[name]
        width, prior = math.exp(NINETY * posterior.widths[name]), math.exp(NINETY * before[name])
        terms.add_row(
            name.replace("_", " "),
            significant(value),
            f"{significant(max(least, value / width))} to {significant(min(most, value * width))}",
            f"{significant(max(least, 1 / prior))} to {significant(min(most, prior))}",
        )
    alone = len(posterior.runs) == 1
    runs = figures_table("steps", ("run",), ("measured", "predicted before", "with the terms", "from the other runs"))
    for each in posterior.runs:
        left_out = "" if alone else duration(each.left_out_us)
        runs.add_row(each.run, duration(each.measured_us), duration(each.before_us), duration(each.after_us), left_out)
    error = posterior.left_out_percent
    last = (
        _furthest(posterior)
        if error is None
        else f"each run predicted from the others: {percent(error / 100)} off on average"
    )
    if posterior.scatter > 1:
        last += f"; they scatter {multiple(posterior.scatter)} as much as expected, which widens intervals"
    return stacked(terms, "", runs, last)


def _furthest(posterior: Posterior) -> str:
    """The term that a single run moves the most for its prior, and how far, in a sentence."""
    values = asdict(posterior.terms)
    widths = zip(TERMS, prior_deviations(posterior.shared_error), strict=True)
    moved = {name: abs(math.log(values[name])) / width for name, width in widths}
    name = max(moved, key=lambda each: moved[each])
    return (
        f"for what was known before, one run moves {name.replace('_', ' ')} the most: to {significant(values[name])}, by {significant(moved[name])} standard "
        "deviations; a second run shows how well the terms carry over"
    )
