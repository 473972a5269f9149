"""Stores imported tables: rows judged, repeats merged, missing phases filled in. Each table is a session of its profile."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.files.disk import naming_the_disk
from sampling.hardware.cluster import Cluster, hardware_facts, load_cluster
from sampling.importers.gate import judge
from sampling.importers.table import Row, Table
from sampling.session.profile import profile_lock
from sampling.store.profiles import Manifest, read_manifest, write_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples, write_table

FILL_SOURCE = "ratio from another device"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTable:
    """The good and bad rows of a table, as samples of a session of the manifest."""

    table: Table
    session: int
    samples: tuple[Sample, ...]

    @property
    def rows(self) -> int:
        return len(self.table.rows)

    @property
    def quarantined(self) -> int:
        return sum(bool(sample.quarantine) for sample in self.samples)

    @property
    def kept(self) -> int:
        return len(self.samples) - self.quarantined

    @property
    def merged(self) -> int:
        """Rows that were merged into another of the same call and phase."""
        return self.rows - len(self.samples)


def store(tables: Sequence[Table], directory: Path, homes: Sequence[Path]) -> list[StoredTable]:
    """Put the tables, all of one device, into the profile at `directory`; ratios come from the profiles under `homes`.

    A table that was imported before is replaced, and filled phases are filled in again from all rows. Old rows stay until
    their replacement is complete. Raises UserError for a full disk, and SamplesError if the profile belongs to another
    device, holds sampled rows, or if no row of the tables is good.
    """
    with profile_lock(directory), naming_the_disk(directory):
        manifest = _manifest(directory, tables[0].hardware)
        outcomes = [_outcome(table, _session(manifest, table)) for table in tables]
        _refuse_useless(outcomes)
        old = _others(directory, manifest, {outcome.session for outcome in outcomes})
        outcomes += _filled(outcomes, old, manifest, directory, homes)
        _describe(manifest, outcomes)
        write_manifest(directory, manifest)
        _write(directory, outcomes, old)
    return outcomes


def _refuse_useless(outcomes: Sequence[StoredTable]) -> None:
    """SamplesError if no row is good; checked before writing, so that good rows of an earlier import stay."""
    if any(outcome.kept for outcome in outcomes):
        return
    reasons = Counter(sample.quarantine.partition(":")[0] for outcome in outcomes for sample in outcome.samples)
    tables = ", ".join(outcome.table.name for outcome in outcomes)
    why, count = reasons.most_common(1)[0] if reasons else ("no rows", 0)
    example = next((s.quarantine for outcome in outcomes for s in outcome.samples if s.quarantine), "")
    raise SamplesError(
        f"{tables}: no row is good, and nothing was changed: {count} rows are {why!r} (the first: {example}); "
        "check the device (--system) and the unit of the times"
    )


def _manifest(directory: Path, hardware: str) -> Manifest:
    device = {"name": hardware_facts(hardware).name, "imported": True}
    if not (directory / "manifest.json").exists():
        return Manifest(profile=directory.name, hardware=hardware, device=device)
    manifest = read_manifest(directory)
    if (manifest.hardware, manifest.device) != (hardware, device):
        raise SamplesError(
            f"{directory}: its rows are of {manifest.hardware}, {manifest.device}, these are imported for {hardware}; "
            "import them under another name with --profile"
        )
    return manifest


def _session(manifest: Manifest, table: Table) -> int:
    """Number of the session that holds this table's rows: its last import's, or a new one."""
    slot = table.slot or table.name
    for session in manifest.sessions:
        if (session["source"], session["slot"]) == (table.source, slot):
            return int(session["id"])
    number = len(manifest.sessions)
    manifest.sessions.append({"id": number, "source": table.source, "slot": slot})
    return number


def _outcome(table: Table, session: int, origins: Sequence[str] = ()) -> StoredTable:
    reasons = judge(table, cluster_of(table))
    samples = _samples(table, reasons, session, origins or ["imported"] * len(table.rows))
    return StoredTable(table=table, session=session, samples=tuple(samples))


def cluster_of(table: Table) -> Cluster:
    return load_cluster(
        hardware=table.hardware, nodes=1, gpus_per_node=1, profile=table.source, cores=table.threads or None
    )


def _samples(table: Table, reasons: Sequence[str], session: int, origins: Sequence[str]) -> Iterator[Sample]:
    """Samples of a table: good repeats of a call and phase are merged, bad rows stay as they are."""
    alike: dict[tuple[Call, Phase], list[int]] = {}
    for index, row in enumerate(table.rows):
        if not reasons[index]:
            alike.setdefault((row.call, row.phase), []).append(index)
    groups = [*alike.values(), *([index] for index, reason in enumerate(reasons) if reason)]
    for group in groups:
        first = table.rows[group[0]]
        low_us, time_us, high_us = _spread([table.rows[index].time_us for index in group])
        call = first.call
        yield Sample(
            call=call,
            phase=first.phase,
            threads=table.threads,
            busy_ranks=call.ranks_per_node if isinstance(call, Collective) else 1,
            time_us=time_us,
            low_us=low_us,
            high_us=high_us,
            repeats=len(group),
            quarantine=reasons[group[0]],
            session=session,
            origin=origins[group[0]],
        )


def good_samples(table: Table) -> list[Sample]:
    """The good rows of a GPU's table, as samples that are not stored."""
    return [
        Sample(
            call=row.call,
            phase=row.phase,
            threads=0,
            busy_ranks=1,
            time_us=row.time_us,
            low_us=row.time_us,
            high_us=row.time_us,
            repeats=1,
            quarantine="",
            session=0,
        )
        for row, reason in zip(table.rows, judge(table, cluster_of(table)), strict=True)
        if not reason
    ]


def _spread(times_us: list[float]) -> tuple[float, float, float]:
    if len(times_us) == 1:
        return times_us[0], times_us[0], times_us[0]
    low, middle, high = np.quantile(times_us, [0.1, 0.5, 0.9])
    return float(low), float(middle), float(high)


def _others(directory: Path, manifest: Manifest, replaced: Collection[int]) -> list[Sample]:
    """The profile's samples of other tables, without filled ones."""
    filled = {session["id"] for session in manifest.sessions if session["source"] == FILL_SOURCE}
    gone = filled.union(replaced)
    tables = {name: table[~table["session"].isin(gone)] for name, table in read_samples(directory).items()}
    return list(iterate_samples(tables))


def _filled(
    outcomes: Sequence[StoredTable], old: Sequence[Sample], manifest: Manifest, directory: Path, homes: Sequence[Path]
) -> list[StoredTable]:
    """A table of the phases that no table of the profile has."""
    samples = [*old, *(sample for outcome in outcomes for sample in outcome.samples)]
    good = [
        Row(call=sample.call, phase=sample.phase, time_us=sample.time_us) for sample in samples if not sample.quarantine
    ]
    missing = gaps(good)
    if not missing:
        return []
    filled = list(fill(good, references(manifest.hardware, homes, directory)))
    done = {(row.call.NAME, row.phase) for row, _ in filled}
    left = sorted(
        f"{name} {phase}" for name, phases in missing.items() for phase in phases if (name, phase) not in done
    )
    remark = f"no other profile holds both forward and these, so they stay unmeasured: {', '.join(left)}"
    table = Table(
        source=FILL_SOURCE,
        name="phases that no table has",
        hardware=manifest.hardware,
        rows=tuple(row for row, _ in filled),
        threads=outcomes[0].table.threads,
        provenance={"ratios": sorted({origin for _, origin in filled})},
        remarks=(remark,) if left else (),
    )
    return [_outcome(table, _session(manifest, table), [origin for _, origin in filled])]


def _describe(manifest: Manifest, outcomes: Iterable[StoredTable]) -> None:
    for outcome in outcomes:
        manifest.sessions[outcome.session] |= {
            "table": outcome.table.name,
            "date": time.strftime("%Y-%m-%d"),
            **outcome.table.provenance,
            "rows": outcome.rows,
            "merged": outcome.merged,
            "quarantined": outcome.quarantined,
            "remarks": list(outcome.table.remarks),
        }


def _write(directory: Path, outcomes: Sequence[StoredTable], old: Iterable[Sample]) -> None:
    by_name: dict[str, list[Sample]] = {}
    for sample in (*old, *(sample for outcome in outcomes for sample in outcome.samples)):
        by_name.setdefault(sample.call.NAME, []).append(sample)
    for name, samples in sorted(by_name.items()):
        write_table(directory, name, samples)
    for path in directory.glob("*.parquet"):
        if path.stem not in by_name:
            path.unlink()


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
        manifest = _timed_manifest(path.parent)
        if manifest is None or path.parent.resolve() == own.resolve():
            continue
        other = hardware_facts(manifest.hardware)
        if other.kind == facts.kind:
            distance = 0 if manifest.hardware == hardware else 1 if other.architecture == facts.architecture else 2
            found[path.parent.resolve()] = Reference(
                directory=path.parent, hardware=manifest.hardware, distance=distance
            )
    return sorted(found.values(), key=lambda reference: reference.distance)


def _timed_manifest(directory: Path) -> Manifest | None:
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
    """A row, and its `origin`, for each forward row and missing phase whose ratio a reference knows.

    Kernel libraries tune a backward together with its forward, so the ratio of the two carries over between devices better
    than either time. It depends on size: the reference's median ratio at the same forward time is used.
    """
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
