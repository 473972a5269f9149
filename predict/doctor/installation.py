"""The installation: this program, and the libraries it can use."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass

from sampling.extras import EXTRAS

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
