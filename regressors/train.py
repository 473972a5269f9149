"""Train every model of a profile: samples in, one bank of models and its accuracy report out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from regressors.accuracy.report import Scored, as_json, as_markdown, quarantine_row
from regressors.accuracy.score import Score, cross_validate, rivals
from regressors.accuracy.units import OWN
from regressors.bank import artifact
from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.donor import Donors, no_donor
from regressors.dataset.pace_facts import RULE
from regressors.dataset.training_data import TrainingData, load_profile
from regressors.fitting.fit import ALONE, fit_operator
from regressors.fitting.settings_search import CACHE_FILE, Best, Outcomes, SettingsSearch, read_outcomes, write_outcomes
from regressors.models.candidates import CANDIDATES
from sampling.errors import ConfigError
from sampling.files.disk import MAKE_WRITABLE, naming_the_disk, require_place, write_atomically
from sampling.progress import Progress
from sampling.store.profiles import read_manifest

NOTE = """\
Cross-validation: every fit sees the other rows only, in three random fifths, five folds of shapes, and without the largest
fifth of the shapes; the settings of trees are those that err least on the other rows, each judged by models of other shapes. *model* is the kind that all rows choose, from the shape and
extrapolation errors; a fold is scored with the kind that the rows of the other folds choose, and the interval that is tested on it
is calibrated on them. A chosen *random-forest* or *xgboost* answers within its samples, and the roofline beyond them. The means are
over operators with at least six shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The path of the bank that a training wrote, and its accuracy report as JSON."""

    path: Path
    accuracy: Mapping[str, Any]


def train(
    *,
    samples: Path,
    output: Path,
    fitted_at: str,
    jobs: int,
    progress: Progress,
    donor: Path | None = None,
    wanted: Sequence[str] = CANDIDATES,
) -> Trained:
    """Fit `data/samples/<profile>` into `data/regressors/<profile>`: bank.npz, report.md and report.json.

    `donor` is the regressors' folder of another device, whose models lend their times; `wanted` are the kinds of model to choose
    from. Raises SamplesError if there are no samples.
    """
    profile = load_profile(samples, _donors(artifact.load(donor), samples) if donor else no_donor)
    require_place(output, MAKE_WRITABLE)
    group = (OWN, samples.name)
    kept = output / CACHE_FILE
    outcomes: dict[str, tuple[int, float]] = {}
    fitted: list[FittedOperator] = []
    scored: list[Scored] = []
    for operator, scores, searched, found in _fit_all(profile.operators, wanted, jobs, read_outcomes(kept)):
        fitted.append(operator)
        scored.append(Scored(group=group, operator=str(operator.key), scores=scores, searched=searched))
        outcomes |= found
        progress(len(fitted), len(profile.operators), str(operator.key))
    facts = {
        "profile": samples.name,
        "fitted_at": fitted_at,
        "quarantined": sum(profile.quarantined.values()),
        "architecture": profile.architecture,
        "donor": donor.name if donor else "",
        "attention_kernel": profile.attention_kernel,
        "sustained": [list(key) for key in profile.sustained],
        "device": dict(profile.device),
        "pace": dict(profile.pace),
        "pace_rule": RULE,
        "hardware": {str(threads): digest for threads, digest in profile.hardware.items()},
        "provenance": dict(profile.provenance),
    }
    with naming_the_disk(output):
        path = artifact.save(output, fitted, facts)
    title = f"Time models of {samples.name}" + (f", with {donor.name} as donor" if donor else "")
    title += f", {wanted[0]} alone asked for" if len(wanted) == 1 else ""
    quarantined = [quarantine_row(group, "all operators", rows, why=why) for why, rows in profile.quarantined.items()]
    accuracy = as_json(scored, title=title, note=NOTE, date=fitted_at, quarantined=quarantined)
    with naming_the_disk(output):
        write_outcomes(kept, outcomes)
        write_atomically(output / "report.json", json.dumps(accuracy, indent=1).encode())
        write_atomically(output / "report.md", as_markdown(accuracy).encode())
    return Trained(path=path, accuracy=accuracy)


def _donors(lender: artifact.Artifact, samples: Path) -> Donors:
    """The lender's models; ConfigError if they are of the same device, whose rows would be trained and tested on at once."""
    lent, own = lender.facts["provenance"]["hardware"], read_manifest(samples).hardware
    if lent == own:
        raise ConfigError(f"--donor: {lender.path.parent.name!r} is of {own} too; name a profile of another device")
    return lender.donor


_Fit: TypeAlias = tuple[FittedOperator, dict[str, Score], dict[str, Best], Outcomes]
"""A model, its scores, the settings of trees that all of its rows choose, and the outcomes of its searches."""


def _fit_all(operators: Sequence[TrainingData], wanted: Sequence[str], jobs: int, known: Outcomes) -> Iterator[_Fit]:
    import joblib

    parallel = joblib.Parallel(n_jobs=min(jobs, len(operators)), return_as="generator")
    results: Any = parallel(joblib.delayed(_fit)(data, wanted, known) for data in operators)
    yield from results


def _fit(data: TrainingData, wanted: Sequence[str], known: Outcomes) -> _Fit:
    search = SettingsSearch(data, known)
    fitted, errors = fit_operator(data, wanted, beside=rivals(data), search=search)
    scores = cross_validate(data, fitted.model.candidate, errors, search)
    return fitted, scores, search.bests([ALONE.get(kind, kind) for kind in errors]), search.outcomes
