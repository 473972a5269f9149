"""Merge the archive of a GPU session, from any machine, into a profile: `python -m sampling import-archive DIR`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sampling.arguments import Parser
from sampling.errors import ConfigError, SamplesError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.files.faults import counted
from sampling.files.places import OWN_DATA_IN_WORDS
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import one_of, same_device
from sampling.session.archive import ArchiveFacts, Progress, progress_of, read_events, read_facts
from sampling.session.profile import profile_lock
from sampling.store.journal import append_to_journal, fold_journal
from sampling.store.pace_log import PaceReading, append_reading, read_log
from sampling.store.paced_rows import write_paces
from sampling.store.profiles import (
    MANIFEST,
    Manifest,
    default_profile,
    read_manifest,
    samples_directory,
    write_manifest,
)
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples

STEPS = "real-steps.json"
"""File of a profile with the real steps that sessions ran on its device, by archive and name."""


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="python -m sampling import-archive",
        description="Merge the archive of a GPU session into the rows of its device. Importing it again adds what it lacked then.",
        epilog="example: python -m sampling import-archive gpu-session && python -m regressors --profile h200",
    )
    add = made.add_argument
    add("archive", type=Path, metavar="DIR", help="the --out of `python -m sampling.gpu_session`")
    add("--profile", help="name to keep the rows under (default: the name of the device's hardware file)")
    add("--data", type=Path, metavar="DIR", help=f"folder of samples/ (default: {OWN_DATA_IN_WORDS})")
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    print(import_archive(options.archive, profile=options.profile, data=options.data))
    return 0


def import_archive(
    archive: Path, *, profile: str | None = None, data: Path | None = None, rehearsed: bool = False
) -> str:
    """Add the rows that the profile lacks, and say how many. `rehearsed` admits the rows of a fake device.

    SamplesError for a folder that is not an archive, a damaged one, one of another device, and a rehearsal where none is wanted.
    """
    facts = read_facts(archive)
    if facts.rehearsal != rehearsed:
        raise SamplesError(
            f"{archive}: is a rehearsal, whose rows are from a fake device; give the archive of a real session"
        )
    progress = progress_of(read_events(archive))
    numbered = [*(row.session for row in progress.rows), *(reading.session for reading in progress.paces)]
    if any(not 0 <= session < len(facts.sessions) for session in numbered):
        raise SamplesError(f"{archive}: has rows of sessions that it does not describe; fetch the archive again")
    directory = samples_directory(profile or _profile_of(archive, facts), data)
    with profile_lock(directory):
        manifest = _manifest(archive, directory, facts)
        with naming_the_disk(directory):
            fold_journal(directory)
        sessions, numbers = _with_sessions(manifest, facts)
        known = {replace(row, pace=1.0) for row in iterate_samples(read_samples(directory))}
        rows = [replace(row, session=numbers[row.session]) for row in progress.rows]
        new = [row for row in rows if row not in known]
        if new:
            _add(directory, replace(manifest, sessions=sessions), new)
        _keep_paces(directory, [replace(each, session=numbers[each.session]) for each in progress.paces])
        _keep_steps(directory, facts, progress)
    return (
        f"{counted(len(new), 'new row')} of {facts.device['name']} in {directory} ({len(rows) - len(new)} were there already); "
        f"{progress.summary()}{_next(directory.name, progress)}"
    )


def _next(profile: str, progress: Progress) -> str:
    """The commands that come next where the archive has real steps; '' where it has none."""
    if not progress.answered_steps():
        return ""
    return (
        f"; next: `python -m regressors --profile {profile}`, then `predict validate this-gpu --profile {profile}` holds "
        "predictions against the real steps"
    )


def _profile_of(archive: Path, facts: ArchiveFacts) -> str:
    try:
        hardware_facts(facts.hardware)
    except ConfigError as error:
        raise SamplesError(f"{archive}: hardware: {error}") from None
    return default_profile(facts.hardware)


def _manifest(archive: Path, directory: Path, facts: ArchiveFacts) -> Manifest:
    if not (directory / MANIFEST).is_file():
        return Manifest(profile=directory.name, hardware=facts.hardware, device=facts.device)
    manifest = read_manifest(directory)
    if manifest.hardware != facts.hardware or not same_device(one_of(manifest.device), one_of(facts.device)):
        raise SamplesError(
            f"{archive}: its rows are from {facts.hardware}, {facts.device}, and those of {directory} from "
            f"{manifest.hardware}, {manifest.device}; give another --profile"
        )
    return manifest


def _with_sessions(manifest: Manifest, facts: ArchiveFacts) -> tuple[list[dict[str, Any]], list[int]]:
    """The manifest's sessions with those of the archive, and the number that each of the latter has among them."""
    sessions = list(manifest.sessions)
    places = {(session.get("archive"), session.get("archive_session")): place for place, session in enumerate(sessions)}
    numbers = []
    for number, session in enumerate(facts.sessions):
        place = places.get((facts.id, number))
        if place is None:
            place = len(sessions)
            facts_of_session = {key: value for key, value in session.items() if key != "token"}
            sessions.append({**facts_of_session, "id": place, "archive": facts.id, "archive_session": number})
        numbers.append(place)
    return sessions, numbers


def _add(directory: Path, manifest: Manifest, rows: Sequence[Sample]) -> None:
    with naming_the_disk(directory):
        # the sessions before their rows, so that a kill in between leaves no row without its session
        write_manifest(directory, manifest)
        for row in rows:
            append_to_journal(directory, row)
        fold_journal(directory)


def _keep_paces(directory: Path, readings: Sequence[PaceReading]) -> None:
    """Add the readings that the profile lacks, and give its rows their pace by all."""
    known = set(read_log(directory))
    with naming_the_disk(directory):
        for reading in readings:
            if reading not in known:
                append_reading(directory, reading)
        if readings:
            write_paces(directory, read_manifest(directory))


def _keep_steps(directory: Path, facts: ArchiveFacts, progress: Progress) -> None:
    if not progress.steps:
        return
    path = directory / STEPS
    kept = json.loads(path.read_text()) if path.is_file() else {}
    with naming_the_disk(path):
        write_atomically(path, json.dumps({**kept, facts.id: progress.steps}, indent=1).encode())
