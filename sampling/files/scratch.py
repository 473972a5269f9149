"""Temporary folders that do not pile up: what a killed process left is removed when the next folder is made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "steptime-"
YOUNG_S = 60.0
"""Age below which a folder is left alone: its maker may not have locked it yet."""


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A temporary folder, removed after the block, or by a later process if this one is killed in it."""
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", ignore_cleanup_errors=True) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(lock)


def _remove_abandoned() -> None:
    """Remove this user's folders that no living process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > YOUNG_S:
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
