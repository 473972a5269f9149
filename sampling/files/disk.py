"""Files on the disk: written whole or not at all, read only where they are regular and of bounded size; locked and temporary folders.

A full or read-only disk, and a file that cannot be read, are reported in the user's terms.
"""

import fcntl
import io
import os
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from sampling.errors import UserError
from sampling.number_text import count

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


def append_line(file: BinaryIO, line: str) -> None:
    """Add a line to a file that is open for appending and reading ("ab+"). A last line that a kill or a full disk cut short would spoil
    this one too: it is ended first."""
    whole = True
    if file.seekable() and file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        whole = file.read(1) == b"\n"
    file.write((b"" if whole else b"\n") + line.encode() + b"\n")


def require_place(path: Path, fix: str = "give another path") -> None:
    """UserError where no file could be made in the folder `path`, or next to the file: one is made in the nearest folder that exists, and
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
    """Yields a unique temporary path next to `path` to write to; it replaces `path` when the block ends.

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
    """The state that distinguishes a file from an earlier one of its name: inode, size and time of writing; () for none."""
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


@contextmanager
def folder_lock(folder: Path, held: str, *, file: str = "") -> Iterator[int]:
    """Lock a folder, which is made if need be, or a file in it; UserError, which says `held`, while another process has locked it.

    Yields the lock's descriptor: processes that inherit it keep the folder locked after this one.
    """
    with naming_the_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / file, os.O_RDWR | os.O_CREAT, 0o666) if file else os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(held) from None
        yield descriptor
    finally:
        os.close(descriptor)


MOST_BYTES = 100_000_000
"""Largest file that is read whole; orders of thousands of microbatches have tens of MB."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
GZIP = b"\x1f\x8b"
MOST_ARCHIVE_BYTES = 1_000_000_000
"""Largest zip archive whose members are read, each by itself."""
BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that `zipfile` unpacks no further than it is asked for."""


class NotReadError(Exception):
    """A file that is not read: the reason and the fix, as words to follow its name."""


def require_regular(path: Path, *, most_bytes: int = MOST_BYTES) -> os.stat_result:
    """The state of a regular file of at most `most_bytes`; NotReadError for anything else."""
    try:
        state = os.stat(path)  # noqa: PTH116  (Path.stat hides names with a NUL)
    except FileNotFoundError:
        raise NotReadError("there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise cannot_be_read(error) from None
    if stat.S_ISDIR(state.st_mode):
        raise NotReadError("is a directory; give a file in it")
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "not a regular file")
        raise NotReadError(f"is {kind}, which is not read; give a regular file")
    if state.st_size > most_bytes:
        raise NotReadError(
            f"holds {count(state.st_size / 1e6)} MB, more than the {count(most_bytes / 1e6)} MB that are read; give a smaller file"
        )
    return state


def is_file(path: Path | str) -> bool:
    """Whether there is a file at a path; False for one that the system does not look up, such as a name of 300 characters."""
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises for such a name)


def is_missing(path: Path) -> bool:
    """Whether there is nothing at a path; one that cannot be looked at may be something."""
    try:
        os.stat(path)  # noqa: PTH116  (Path.exists fails in a folder that may not be searched)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False


def read_bytes(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most_bytes`, without what is appended meanwhile; NotReadError for anything else."""
    size = require_regular(path, most_bytes=most_bytes).st_size
    try:
        with path.open("rb") as file:
            content = file.read(size + 1)
    except OSError as error:
        raise cannot_be_read(error) from None
    if len(content) > size and require_regular(path, most_bytes=most_bytes).st_size == size:  # /proc states 0 bytes
        raise NotReadError("holds more than its stated size; give a copy of it")
    return content[:size]


def read_text(path: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """The text of a regular UTF-8 file of at most `most_bytes`; NotReadError for anything else."""
    try:
        text = read_bytes(path, most_bytes=most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotReadError(f"is not UTF-8 text (byte {error.start}); give a text file") from None
    return io.IncrementalNewlineDecoder(None, translate=True).decode(text, final=True)


def read_unzipped(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a file, unpacked if it is gzipped; NotReadError where either holds more than `most_bytes`."""
    raw = read_bytes(path, most_bytes=most_bytes)
    if not raw.startswith(GZIP):
        return raw
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = unpacker.decompress(raw, most_bytes + 1)
    except zlib.error as error:
        raise NotReadError(f"is not whole gzip ({error}); fetch the file again") from None
    if len(content) > most_bytes:
        raise NotReadError(f"unpacks to more than the {count(most_bytes / 1e6)} MB that are read; give a smaller file")
    if not unpacker.eof:
        raise NotReadError("is cut short; fetch the file again")
    return content


def zip_members(path: Path) -> list[str]:
    """The sorted names in a zip archive; NotReadError for anything else."""
    require_regular(path, most_bytes=MOST_ARCHIVE_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise NotReadError(str(error)) from None


def read_zip_member(path: Path, name: str, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of one member of a zip archive; NotReadError where it is damaged or unpacks to more than `most_bytes`."""
    require_regular(path, most_bytes=MOST_ARCHIVE_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).compress_type not in BOUNDED:
                raise NotReadError("is packed neither plainly nor by deflate; fetch the file again")
            with archive.open(name) as member:
                content = member.read(most_bytes + 1)
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise NotReadError(str(error)) from None
    if len(content) > most_bytes:
        raise NotReadError(f"unpacks to more than the {count(most_bytes / 1e6)} MB that are read; give a smaller file")
    return content


def cannot_be_read(error: OSError | ValueError) -> NotReadError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return NotReadError(f"cannot be read ({reason}); check the path and its permissions")


SCRATCH_PREFIX = "steptime-"
YOUNG_S = 60.0
"""Age below which a folder is left alone: its maker may not have locked it yet."""


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A temporary folder, removed after the block, or by a later process if this one is killed in it."""
    _remove_abandoned()
    with (
        tempfile.TemporaryDirectory(prefix=f"{SCRATCH_PREFIX}{purpose}-", ignore_cleanup_errors=True) as folder,
        folder_lock(Path(folder), f"{folder}: another process has locked it"),
    ):
        yield Path(folder)


def _remove_abandoned() -> None:
    """Remove this user's folders that no living process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*"):
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
