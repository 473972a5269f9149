"""Train every model of a profile: samples in, one artifact and its report out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regressors.bank import artifact
from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.donor import Donors, no_donor
from regressors.dataset.training_data import TrainingData, load_profile
from regressors.fitting.fit import fit_operator
from regressors.progress import Progress
from regressors.report import OperatorReport, as_json, as_markdown
from sampling.errors import ConfigError
from sampling.files.disk import write_atomically
from sampling.store.manifest import read_manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What a training left: the artifact's path and the rows of its report."""

    path: Path
    reports: tuple[OperatorReport, ...]


def train(
    *, samples: Path, output: Path, fitted_at: str, jobs: int, progress: Progress, donor: Path | None = None
) -> Trained:
    """Fit `data/samples/<profile>` into `data/regressors/<profile>`: bank.npz, report.md and report.json.

    `donor` is the regressors' folder of another device, whose models lend their times. Raises SamplesError where there
    are no samples.
    """
    profile = load_profile(samples, _donors(artifact.load(donor), samples) if donor else no_donor)
    fitted: list[FittedOperator] = []
    reports: list[OperatorReport] = []
    for operator, report in _fit_all(profile.operators, jobs):
        fitted.append(operator)
        reports.append(report)
        progress(len(fitted), len(profile.operators), str(operator.key))
    facts = {"profile": samples.name, "fitted_at": fitted_at, "quarantined": profile.quarantined}
    facts |= {"architecture": profile.architecture, "donor": donor.name if donor else ""}
    hardware = {str(threads): digest for threads, digest in profile.hardware.items()}
    path = artifact.save(output, fitted, {**facts, "hardware": hardware, "provenance": dict(profile.provenance)})
    write_atomically(output / "report.json", as_json(reports, facts).encode())
    write_atomically(output / "report.md", as_markdown(reports, facts).encode())
    return Trained(path=path, reports=tuple(reports))


def _donors(lender: artifact.Artifact, samples: Path) -> Donors:
    """Rows of the same device would be learnt from and held out at once, and every error look small."""
    lent, own = lender.facts["provenance"]["hardware"], read_manifest(samples).hardware
    if lent == own:
        raise ConfigError(f"--donor: {lender.path.parent.name!r} is of {own} too; name a profile of another device")
    return lender.donor


def _fit_all(operators: Sequence[TrainingData], jobs: int) -> Iterator[tuple[FittedOperator, OperatorReport]]:
    import joblib

    parallel = joblib.Parallel(n_jobs=min(jobs, len(operators)), return_as="generator")
    results: Any = parallel(joblib.delayed(fit_operator)(data) for data in operators)
    yield from results
