"""A profile while a session samples into it: locked by one session, with a manifest that ends in that session."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sampling.errors import SamplesError
from sampling.files.disk import folder_lock, naming_the_disk
from sampling.hardware.this_device import identify, provenance, same_device
from sampling.store.journal import blame, fold_journal
from sampling.store.paced_rows import write_paces
from sampling.store.profiles import Manifest, read_manifest, write_manifest
from sampling.timing.timer import TimerSettings

LOCK = ".lock"


def profile_lock(directory: Path) -> AbstractContextManager[int]:
    """The lock of a profile's directory while a session, or a rank of one, samples into it."""
    held = f"{directory}: another session is sampling into it; wait for it to end, or use another --profile (PROFILE=…)"
    return folder_lock(directory, held, file=LOCK)


def session_entry(timer: TimerSettings, communication: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry of a session that begins now: its date, code and software, and how it times calls."""
    facts = {"date": time.strftime("%Y-%m-%d"), **provenance()}
    return facts | {"timer": asdict(timer), "communication": dict(communication or {})}


def open_profile(
    directory: Path,
    *,
    profile: str,
    hardware: str,
    fresh: bool = False,
    communication: Mapping[str, Any] | None = None,
) -> Manifest:
    """The profile's manifest with a new session at its end; rows of an interrupted session are folded in first.

    `communication` is the provenance of collectives: nodes, library, and the variables that steer it. Raises SamplesError
    if the rows there come from another machine; with `fresh` they are set aside instead.
    """
    device = identify(hardware)
    if fresh:
        with naming_the_disk(directory):
            _set_aside(directory)
    if (directory / "manifest.json").exists():
        manifest = read_manifest(directory)
        if manifest.hardware != hardware or not same_device(manifest.device, device):
            raise SamplesError(
                f"{directory}: its rows are from {manifest.hardware}, {manifest.device}; this session is on {hardware}, "
                f"{device}; sample under another name (PROFILE=…), or start the profile anew with FRESH=1 or --fresh (the "
                "old rows are set aside, not lost)"
            )
        with naming_the_disk(directory):
            fold_journal(directory)
            blame(directory, "")
    else:
        manifest = Manifest(profile=profile, hardware=hardware, device=device)
    session = {"id": len(manifest.sessions), **session_entry(TimerSettings(), communication)}
    manifest = replace(manifest, sessions=[*manifest.sessions, session])
    with naming_the_disk(directory / "manifest.json"):
        write_manifest(directory, manifest)
    return manifest


def close_session(directory: Path, manifest: Manifest) -> None:
    """Give the rows their pace, and the manifest the session's; rows of an interrupted session get theirs in the next one."""
    with naming_the_disk(directory):
        log = write_paces(directory, manifest)
        *before, session = manifest.sessions
        if paces := log.of_session(session["id"]):
            write_manifest(directory, replace(manifest, sessions=[*before, {**session, "pace": paces}]))


def forget_session(directory: Path, manifest: Manifest) -> None:
    """Take a session that kept no row out of the manifest: it makes no time model out of date."""
    with naming_the_disk(directory / "manifest.json"):
        write_manifest(directory, replace(manifest, sessions=manifest.sessions[:-1]))


def _set_aside(directory: Path) -> None:
    """Move the contents of a profile into a directory next to it; its lock stays, since this session holds it.

    The manifest goes last, so that rows are never without the machine they are from.
    """
    if not directory.is_dir():
        return
    contents = sorted(
        (path for path in directory.iterdir() if path.name != LOCK), key=lambda path: path.name == "manifest.json"
    )
    if not contents:
        return
    aside = _new_folder_beside(directory, f"{directory.name}.aside-{time.strftime('%Y%m%dT%H%M%S')}")
    for path in contents:
        path.rename(aside / path.name)


def _new_folder_beside(directory: Path, name: str) -> Path:
    """A folder made under `name`, with a number added where a session within the same second made one."""
    number = 1
    while True:
        folder = directory.with_name(name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
