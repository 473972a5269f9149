"""Fills in phases that a publisher did not time, by their ratio to the forward on another device.

Kernel libraries tune a backward together with its forward, so the ratio of the two carries over between devices better
than either time. It depends on size: the reference's median ratio at the same forward time is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.hardware.cluster import hardware_facts
from sampling.importers.table import Row
from sampling.store.manifest import Manifest, read_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples

FEWEST_PAIRS = 20
"""Least number of calls of a reference with both phases for a ratio to be used."""
NEIGHBOURS = 15
"""Number of calls of similar forward time that the median ratio is taken over."""
FILLED = "filled: ratio from "


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A profile to take ratios from; among those that know a ratio, the one of least `distance` is used."""

    directory: Path
    hardware: str
    distance: int
    """0 for the same device, 1 for another of its architecture, 2 for another of its vendor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Ratio of a phase's time to the forward's, over the ascending log of the forward's time."""

    log_us: NDArray[np.float64]
    ratio: NDArray[np.float64]
    origin: str

    def at(self, time_us: float) -> float:
        nearest = int(np.abs(self.log_us - np.log(time_us)).argmin())
        return float(self.ratio[nearest])


def references(hardware: str, homes: Iterable[Path], own: Path) -> list[Reference]:
    """The profiles under `homes`, except `own`, of devices of the same vendor, nearest first."""
    facts = hardware_facts(hardware)
    found: dict[Path, Reference] = {}
    for path in (path for home in homes for path in sorted((home / "samples").glob("*/manifest.json"))):
        manifest = _manifest(path.parent)
        if manifest is None or path.parent.resolve() == own.resolve():
            continue
        other = hardware_facts(manifest.hardware)
        if other.kind == facts.kind:
            distance = 0 if manifest.hardware == hardware else 1 if other.architecture == facts.architecture else 2
            found[path.parent.resolve()] = Reference(
                directory=path.parent, hardware=manifest.hardware, distance=distance
            )
    return sorted(found.values(), key=lambda reference: reference.distance)


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except SamplesError:  # a damaged neighbour must not prevent an import
        return None


def gaps(rows: Iterable[Row]) -> dict[str, list[Phase]]:
    """Call name → the phases that no row has, for calls that have a forward."""
    there: dict[str, set[Phase]] = {}
    kinds: dict[str, type[Call]] = {}
    for row in rows:
        there.setdefault(row.call.NAME, set()).add(row.phase)
        kinds[row.call.NAME] = type(row.call)
    missing = {
        name: [phase for phase in kinds[name].PHASES if phase not in phases]
        for name, phases in there.items()
        if "forward" in phases
    }
    return {name: phases for name, phases in missing.items() if phases}


def fill(rows: Sequence[Row], profiles: Sequence[Reference]) -> Iterator[tuple[Row, str]]:
    """A row, and its `origin`, for each forward row and missing phase whose ratio a reference knows."""
    wanted = gaps(rows)
    curves = _curves(wanted, profiles) if wanted else {}
    for row in rows:
        for phase in wanted.get(row.call.NAME, ()) if row.phase == "forward" else ():
            curve = curves.get((row.call.NAME, phase))
            if curve is not None:
                yield replace(row, phase=phase, time_us=row.time_us * curve.at(row.time_us)), curve.origin


def _curves(wanted: Mapping[str, Sequence[Phase]], profiles: Sequence[Reference]) -> dict[tuple[str, Phase], Curve]:
    """Curves by call name and phase, each of the first reference that has enough pairs."""
    curves: dict[tuple[str, Phase], Curve] = {}
    for profile in profiles:
        open_names = [name for name, phases in wanted.items() if any((name, phase) not in curves for phase in phases)]
        if not open_names:
            break
        try:
            tables = read_samples(profile.directory, open_names)
        except SamplesError:  # as with a damaged manifest
            continue
        for name in tables:
            times = _times(iterate_samples({name: tables[name]}))
            for phase in wanted[name]:
                curve = _curve(times, phase, profile.hardware)
                if curve is not None:
                    curves.setdefault((name, phase), curve)
    return curves


def _times(samples: Iterable[Sample]) -> dict[Phase, dict[tuple[Call, int, int], float]]:
    times: dict[Phase, dict[tuple[Call, int, int], float]] = {}
    for sample in samples:
        if not sample.quarantine and not sample.origin.startswith(FILLED):
            times.setdefault(sample.phase, {})[sample.call, sample.threads, sample.busy_ranks] = sample.time_us
    return times


def _curve(times: Mapping[Phase, Mapping[tuple[Call, int, int], float]], phase: Phase, hardware: str) -> Curve | None:
    forward, other = times.get("forward", {}), times.get(phase, {})
    pairs = sorted((forward[key], other[key] / forward[key]) for key in forward.keys() & other.keys())
    if len(pairs) < FEWEST_PAIRS:
        return None
    forward_us, ratio = np.array(pairs, dtype=np.float64).T
    padded = np.pad(ratio, NEIGHBOURS // 2, mode="reflect")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), axis=1)
    return Curve(log_us=np.log(forward_us), ratio=smooth, origin=f"{FILLED}{hardware}")
