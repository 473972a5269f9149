"""A disk that is full, or not ours to write to, said in the user's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sampling.errors import UserError


@contextmanager
def naming_the_disk(path: Path) -> Iterator[None]:
    """An OSError inside becomes a UserError that names the file, or `path` where the system names none."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or path}: cannot be written ({error.strerror or error}); the rows kept so far stay; free "
            "some space, or make the directory writable, and run again to go on"
        ) from None
