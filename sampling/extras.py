"""The extras of the installation: libraries that only some commands need, and the message where one is missing."""

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sampling.errors import UserError

EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("torch", "sklearn", "xgboost", "pandas", "pyarrow", "joblib", "scipy", "numba"), "sample"),
    "matplotlib": "plot",
    "transformers": "transformers",
    "google.protobuf": "chakra",
}
"""Library, by the name it is imported by → the extra of pyproject.toml that installs it."""


def require_library(name: str) -> None:
    """UserError, before any work, for a library that is not installed."""
    parent = name.partition(".")[0]  # looked for first: a search inside one that is not there fails
    if importlib.util.find_spec(parent) is None or importlib.util.find_spec(name) is None:
        raise _missing(name)


@contextmanager
def naming_extras() -> Iterator[None]:
    """Context in which a missing library of an extra raises a UserError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        raise _missing(library) from None


def _missing(library: str) -> UserError:
    return UserError(
        f"{library} is not installed, and this command needs it; run `pip install 'steptime[{EXTRAS[library]}]'`, or in a "
        "clone `make setup`"
    )
