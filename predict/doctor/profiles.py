"""The profiles of samples and time models that there are, and what is stale or damaged in them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from regressors.bank import artifact
from regressors.bank.staleness import sessions_since
from sampling.errors import SamplesError
from sampling.store import manifest
from sampling.store.profiles import IMPORTED, OWN, SHIPPED, home_of, known_profiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One profile; its dates are those of the last session and of the fit, '' where there is none."""

    name: str
    kind: str
    """shipped, imported or own."""
    folder: str
    device: str
    rows: int | None
    """Rows of samples; None where no library is installed that counts them."""
    set_aside: int | None
    """How many of them are quarantined, so that no time model learns from them; None as for `rows`."""
    sampled: str
    fitted: str
    fault: str
    """What is wrong with it and the command that mends it; '' if nothing is."""

    @property
    def usable(self) -> int | None:
        """Rows that time models learn from; None where they are not counted."""
        return None if self.rows is None or self.set_aside is None else self.rows - self.set_aside


def all_profiles() -> tuple[Profile, ...]:
    """Every profile that a cluster can name."""
    return tuple(map(_profile, known_profiles()))


def _profile(name: str) -> Profile:
    home = home_of(name)
    samples, models = home / "samples" / name, home / "regressors" / name
    device = sampled = fitted = ""
    faults = []
    try:
        if (samples / manifest.FILE).is_file():
            of_samples = manifest.read_manifest(samples)
            device = str(of_samples.device.get("name", ""))
            sampled = max((str(session.get("date", "")) for session in of_samples.sessions), default="")
        if not (models / artifact.FILE).is_file():
            faults.append(f"has no time models; run `{_fit(name, home)}`")
        else:
            facts = artifact.load(models).facts
            device = device or str(facts["provenance"]["device"].get("name", ""))
            fitted = str(facts["fitted_at"])[:10]
            if newer := sessions_since(facts, samples):
                faults.append(
                    f"{newer} of its sampling sessions are newer than its time models; run `{_fit(name, home)}`"
                )
    except SamplesError as error:
        faults.append(str(error))
    rows, set_aside = _rows(samples)
    return Profile(
        name=name,
        kind="shipped" if name == SHIPPED else "imported" if home.name == IMPORTED else "own",
        folder=str(samples if samples.is_dir() else models),
        device=device,
        rows=rows,
        set_aside=set_aside,
        sampled=sampled,
        fitted=fitted,
        fault="; ".join(faults),
    )


def _fit(name: str, home: Path) -> str:
    if home.name == IMPORTED:
        return f"python -m regressors --data {home} --profile {name}"
    return "make train-regressors" + ("" if name == OWN else f" PROFILE={name}")


def _rows(samples: Path) -> tuple[int, int] | tuple[None, None]:
    """Rows in the tables of a profile, and how many of them are quarantined, by that column alone; a damaged table counts none."""
    if importlib.util.find_spec("pyarrow") is None:
        return None, None
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    rows = set_aside = 0
    for table in samples.glob("*.parquet"):
        try:
            reasons = ParquetFile(table).read(columns=["quarantine"])["quarantine"].to_pylist()
        except (ArrowException, OSError, KeyError):
            continue
        rows += len(reasons)
        set_aside += sum(map(bool, reasons))
    return rows, set_aside
