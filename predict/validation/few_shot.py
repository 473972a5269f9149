"""Few-shot calibration judged: the error of a source's other runs before and after a few of its runs were measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from predict.measured_runs.calibrate import RULE, medoids, spread_evenly
from predict.measured_runs.fit_terms import (
    MeasuredRun,
    at_odds,
    derivatives,
    fit,
    posterior_of,
    require_explained,
    require_units,
)
from predict.run.calibration_terms import TERMS, Posterior
from predict.serialise import version_of
from predict.validation.compared import grouped
from predict.validation.published import Comparison, compare, configurations, measured_run
from predict.validation.published_row import PublishedRow
from predict.validation.published_scores import figures
from sampling.errors import UserError

MOST_CHOSEN_FROM = 60
"""Configurations of a source that are chosen from, at even distances in its table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FewShot:
    """One source: the runs that were measured, and the others before and after."""

    source: str
    chosen: tuple[str, ...]
    refused: str
    """Why the measurements were refused, so that nothing changed; empty where they were taken."""
    posterior: Posterior | None
    before: tuple[Comparison, ...]
    after: tuple[Comparison, ...]


def few_shot(
    rows: Sequence[PublishedRow], count: int, *, profile: str = "", report: Callable[[str], None] = lambda _: None
) -> list[FewShot]:
    """Each source of a table with `count` of its configurations taken as measured; UserError where none has another to judge."""
    judged = []
    for source, of_source in grouped(rows, _source).items():
        report(f"{source}: predicting {len(of_source)} rows")
        found = configurations(compare(of_source, profile=profile))
        if len(found) > count:
            judged.append(_judged(source, found, count, profile, report))
        else:
            report(f"{source}: left out, {len(found)} configurations leave none to judge after {count}")
    if not judged:
        raise UserError(
            f"--few-shot: no source of the table has more than {count} configurations; give a smaller number"
        )
    return judged


def _judged(
    source: str, found: Sequence[Comparison], count: int, profile: str, report: Callable[[str], None]
) -> FewShot:
    taken = _chosen(found, count, profile, report)
    names = {one.name for one in taken}
    others = [one for one in found if one.row.row_id not in names]
    posterior, refused = _fitted(taken, report)
    after = others
    if posterior:
        report(f"{source}: predicting {len(others)} others again")
        again = compare([one.row for one in others], profile=profile, calibration=posterior)
        after = [
            replace(new, measured=old.measured, repeats=old.repeats)
            for new, old in zip(again, others, strict=True)
            if isinstance(new, Comparison)
        ]
    return FewShot(
        source=source,
        chosen=tuple(one.name for one in taken),
        refused=refused,
        posterior=posterior,
        before=tuple(others),
        after=tuple(after),
    )


def _chosen(found: Sequence[Comparison], count: int, profile: str, report: Callable[[str], None]) -> list[MeasuredRun]:
    if not count:
        return []
    places = spread_evenly(range(len(found)), MOST_CHOSEN_FROM)
    found_runs = [measured_run(found[place].row, profile, found[place].measured_us) for place in places]
    known = [one for one in found_runs if one]
    report(f"choosing {count} of {len(known)} configurations")
    slopes = derivatives(known, np.zeros(len(TERMS)))
    return [known[place] for place in medoids(slopes, count)]


def _source(row: PublishedRow) -> str:
    """The source, and its cluster where the table names one: a calibration is one cluster's."""
    return " ".join(filter(None, (row.text("source_id"), row.text("cluster"))))


def _fitted(taken: Sequence[MeasuredRun], report: Callable[[str], None]) -> tuple[Posterior | None, str]:
    """The calibration, or why there is none; a run at odds with the others is left out, as the refusal of it advises.

    The times of a published table are known to be of their rows, so a single one may move a term FAR (`reach`).
    """
    if not taken:
        return None, ""
    kept = list(taken)
    try:
        require_units(kept)
        found = fit(kept, report)
        while len(kept) > 2 and (worst := at_odds(found)) is not None:
            report(f"left out: {kept.pop(worst).name}, at odds with the others")
            found = fit(kept, report)
        require_explained(kept, found)
    except UserError as error:
        return None, str(error)
    return posterior_of(kept, found), ""


def few_shot_json(judged: Sequence[FewShot], count: int) -> dict[str, Any]:
    """The contract of `predict calibrate --few-shot --json`."""
    return {
        "version": version_of("few-shot"),
        "few_shot": count,
        "rule": RULE,
        "sources": [_source_json(one) for one in judged],
    }


def _source_json(one: FewShot) -> Mapping[str, Any]:
    return {
        "source": one.source,
        "measured": list(one.chosen),
        "fitted_to": [each.run for each in one.posterior.runs] if one.posterior else [],
        "refused": one.refused or None,
        "terms": one.posterior and asdict(one.posterior.terms),
        "widths_log": one.posterior and dict(one.posterior.widths),
        "before": figures(["before"], one.before),
        "after": figures(["after"], one.after),
    }
