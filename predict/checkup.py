"""The state of the installation, the machine and the data that predictions rest on."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from predict.prices.pace import pace_spread
from predict.prices.sample_provenance import HOW_TO_SAMPLE
from predict.serialise import version_of
from regressors.bank import artifact
from regressors.bank.bank import sessions_since
from sampling.errors import SamplesError, UserError
from sampling.extras import EXTRAS
from sampling.files.places import CONFIGS, SHIPPED_DATA, fitting_command, own_data, sampling_command
from sampling.hardware.this_device import cpu_name, detect_hardware, identify
from sampling.number_text import plain, whole_percent
from sampling.store import profiles as manifest
from sampling.store.profiles import IMPORTED, OWN, SHIPPED, home_of, known_profiles, profile_in_use

# The profiles of samples and time models that there are, and what is stale or damaged in them.


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileState:
    """One profile; its dates are those of the last session and fit, '' where there is none."""

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
    pace_half_width: float | None
    """Half-width in log time, at 90 %, that the machine's pace over time adds to a step whose calls were all timed, the widest over the
    numbers of busy ranks; None where no session read it at enough moments."""
    fault: str
    """What is wrong with it and the command that mends it; '' if nothing is."""

    @property
    def usable(self) -> int | None:
        """Rows that time models learn from; None where they are not counted."""
        return None if self.rows is None or self.set_aside is None else self.rows - self.set_aside


def all_profiles() -> tuple[ProfileState, ...]:
    """Every profile that a cluster can name."""
    return tuple(map(_profile, known_profiles()))


def _profile(name: str) -> ProfileState:
    home = home_of(name)
    samples, models = home / "samples" / name, home / "regressors" / name
    device = sampled = fitted = ""
    pace_half_width = None
    faults = []
    try:
        if (samples / manifest.MANIFEST).is_file():
            of_samples = manifest.read_manifest(samples)
            device = str(of_samples.device.get("name", ""))
            sampled = max((str(session.get("date", "")) for session in of_samples.sessions), default="")
        if not (models / artifact.FILE).is_file():
            faults.append(f"has no time models; run `{_fit(name, home)}`")
        else:
            facts = artifact.load(models).facts
            device = device or str(facts["provenance"]["device"].get("name", ""))
            fitted = str(facts["fitted_at"])[:10]
            known = [each for each in facts.get("pace", {}).values() if each["half_width"]]
            pace_half_width = max((pace_spread(each, {}) for each in known), default=None)
            if newer := sessions_since(facts, samples):
                faults.append(
                    f"{newer} of its sampling sessions are newer than its time models; run `{_fit(name, home)}`"
                )
    except SamplesError as error:
        faults.append(str(error))
    rows, set_aside = _rows(samples)
    return ProfileState(
        name=name,
        kind="shipped" if name == SHIPPED else "imported" if home.name == IMPORTED else "own",
        folder=str(samples if samples.is_dir() else models),
        device=device,
        rows=rows,
        set_aside=set_aside,
        sampled=sampled,
        fitted=fitted,
        pace_half_width=pace_half_width,
        fault="; ".join(faults),
    )


def _fit(name: str, home: Path) -> str:
    if home.name == IMPORTED:
        return f"python -m regressors --data {home} --profile {name}"
    return fitting_command("" if name == OWN else name).strip("`")


def _rows(samples: Path) -> tuple[int, int] | tuple[None, None]:
    """Rows in the tables of a profile, and how many of them are quarantined, by that column alone; a damaged table counts none."""
    if importlib.util.find_spec("pyarrow") is None:
        return None, None
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    rows = set_aside = 0
    for table in samples.glob("*.parquet"):
        try:
            # opened here: pyarrow refuses names that are not UTF-8
            with table.open("rb") as stream:
                reasons = ParquetFile(stream).read(columns=["quarantine"])["quarantine"].to_pylist()
        except (ArrowException, OSError, KeyError):
            continue
        rows += len(reasons)
        set_aside += sum(map(bool, reasons))
    return rows, set_aside


# The installation: this program, and the libraries it can use.

PROGRAM = "steptime"
CORE = ("numpy", "yaml", "rich")
PACKAGES: Mapping[str, str] = {"google.protobuf": "protobuf", "yaml": "PyYAML", "sklearn": "scikit-learn"}
"""Library, by the name it is imported by → the name it is installed by, where that is another."""
GIVES: Mapping[str, str] = {
    "": "predicting",
    "sample": "sampling, fitting, importing and real steps",
    "plot": "pictures",
    "transformers": "real steps of the transformers library",
    "chakra": "traces for simulators of networks",
}
"""Extra → what its libraries are for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """One library: its version, '' where it is missing, and the extra that brings it, '' for one that predicting needs."""

    name: str
    version: str
    extra: str


def program_version() -> str:
    """The version of this program."""
    return _version(PROGRAM) or "of a clone that is not installed"


def python_version() -> str:
    return platform.python_version()


def libraries() -> tuple[Library, ...]:
    """Each library that the program can use; none is imported."""
    extras = dict.fromkeys(CORE, "") | dict(EXTRAS)
    return tuple(
        Library(name=name, version=_version(PACKAGES.get(name, name)), extra=extra) for name, extra in extras.items()
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


# The checkup: installation, machine, folders and profiles in one value.

FEW = 0.1
"""Share of the shipped rows of the same CPU below which own rows are few: most operators then have none or a handful."""
UNSTEADY = math.log(1.25)
"""Half-width of the pace over time from which an interval is mostly the machine's own: the other parts of a sampled step's make 8 to
12 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
    """The state of everything that predictions on this machine rest on. `folders` are named by what lies in them."""

    version: str
    python: str
    libraries: tuple[Library, ...]
    cpu: str
    cores: int
    gpu: str
    """The GPUs that torch finds, or why none is known."""
    folders: dict[str, str]
    profiles: tuple[ProfileState, ...]
    runs_here_use: str
    """The profile that runs on this machine are answered from."""

    @property
    def faults(self) -> list[str]:
        """Everything that has to be mended, each with the command that does."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        lacking = [library.name for library in self.libraries if not library.extra and not library.version]
        if lacking:
            yield f"{', '.join(lacking)}: not installed, and predicting needs it; run `pip install steptime`, or `make setup`"
        yield from (f"{profile.name}: {profile.fault}" for profile in self.profiles if profile.fault)

    @property
    def advice(self) -> str:
        """Advice that would make predictions on this machine better, a line each; '' if nothing is known to."""
        return "\n".join(filter(None, (self._advice_on_rows(), *self._advice_on_pace())))

    def _advice_on_pace(self) -> Iterator[str]:
        for each in self.profiles:
            half_width = each.pace_half_width or 0.0
            if each.kind == "own" and each.device == self.cpu and half_width > UNSTEADY:
                again = sampling_command("" if each.name == OWN else each.name, runs=" RUNS=…")
                yield (
                    f"This machine's pace over time, as it moved while {each.name} was sampled, adds ±{whole_percent(math.expm1(half_width))} to every "
                    f"interval: run {again} again when the machine is quiet; rows of a poor pace are taken again first"
                )

    def _advice_on_rows(self) -> str:
        by_name = {profile.name: profile for profile in self.profiles}
        if self.runs_here_use != OWN:
            own = [
                each.name for each in self.profiles if each.kind == "own" and each.fitted and each.device == self.cpu
            ]
            named = f", or name {' or '.join(own)}, of this CPU too, with --set cluster.profile=NAME" if own else ""
            return (
                f"Runs here are answered from {self.runs_here_use}: no profile {OWN} is fitted; {HOW_TO_SAMPLE}{named}"
            )
        own_rows, shipped = by_name[OWN], by_name.get(SHIPPED)
        if own_rows.usable is None or shipped is None or not shipped.usable or shipped.device != self.cpu:
            return ""
        if own_rows.usable >= FEW * shipped.usable:
            return ""
        return (
            f"Runs here are answered from the {own_rows.usable:,} usable rows of {OWN}; {SHIPPED} has {shipped.usable:,} of the same CPU: "
            f"name it with --set cluster.profile={SHIPPED}, or sample on: {HOW_TO_SAMPLE}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "version": version_of("doctor"),
            "program": self.version,
            **_without_version(asdict(self)),
            "advice": self.advice,
            "faults": self.faults,
        }


def _without_version(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "version"}


def doctor() -> Checkup:
    """Look at what is installed, at the samples and models that there are, and at what is stale; the GPU by torch,
    where that is installed."""
    return Checkup(
        version=program_version(),
        python=python_version(),
        libraries=libraries(),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        gpu=_gpu(),
        folders={
            "configs": str(CONFIGS),
            "shipped data": str(SHIPPED_DATA),
            "own data": str(own_data()),
        },
        profiles=all_profiles(),
        runs_here_use=profile_in_use(OWN),
    )


def _gpu() -> str:
    if importlib.util.find_spec("torch") is None:
        return "not looked for: torch is not installed"
    try:
        hardware = detect_hardware()
        if hardware == "cpu":
            return "none that torch finds"
        facts = identify(hardware)
    except UserError as error:
        return str(error)
    return f"{facts['count']} × {facts['name']}, {plain(facts['memory_gib'])} GiB ({hardware})"
