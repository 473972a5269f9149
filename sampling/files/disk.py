"""Writing files: whole or not at all, and a full or read-only disk reported in the user's terms."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from sampling.errors import UserError

MAKE_WRITABLE = "make it writable, or name other data with --data"
"""Fix for a file of the user's data that cannot be written."""


def require_suffix(path: Path, allowed: Collection[str]) -> None:
    """UserError for a file whose name has another ending than those allowed."""
    if path.suffix.lower() not in allowed:
        raise UserError(f"{path}: unknown kind of file; end the name in {' or '.join(allowed)}")


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file, or leave what is there."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def require_place(path: Path, fix: str = "give another path") -> None:
    """UserError where no file could be made in the folder `path`, or beside the file: one is made in the nearest folder that exists, and
    removed."""
    try:
        _require_replaceable(path, fix)
        place = path.absolute()
        folder = place if place.is_dir() else next(each for each in place.parents if each.exists())
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}); {fix}") from None


def _require_replaceable(path: Path, fix: str = "give another path") -> None:
    """UserError for a device, a pipe or a socket, which a file that is renamed over it would take away."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path} is not a regular file, and would be replaced by one; {fix}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a unique temporary path beside `path` to write to; it replaces `path` when the block ends.

    If the block fails, the temporary file is removed; an OSError of it names `path`.
    """
    _require_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if str(error.filename) == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def state_of(path: Path) -> tuple[int, ...]:
    """The state that tells a file from an earlier one of its name: inode, size and time of writing; () for none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked for every plan, where pathlib takes twice as long
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def naming_the_disk(path: Path) -> Iterator[None]:
    """Turns an OSError of the block into a UserError that names the file, or `path` where the system names none."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or path}: cannot be written ({error.strerror or error}); what was written before stays; "
            "free some space, or make the directory writable, and run again"
        ) from None
