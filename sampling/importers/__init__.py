"""Other people's measurements as samples, always in profiles of their own.

An importer is a module of this folder with

- `SOURCE`, the name that `python -m sampling import` calls it by,
- `PATH`, what the user gives as its path,
- `read(request)`, which turns the files there into tables.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from sampling.importers.reading import as_published
from sampling.importers.table import ImportRequest, Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Importer:
    path: str
    read: Callable[[ImportRequest], list[Table]]

    def tables(self, request: ImportRequest) -> list[Table]:
        """The tables that the user asks for; SamplesError for files that are damaged, whatever the damage."""
        with as_published(str(request.path or self.path)):
            return self.read(request)


def importers() -> dict[str, Importer]:
    """Every importer by its name."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {
        module.SOURCE: Importer(path=module.PATH, read=module.read)
        for module in sorted(modules, key=lambda module: getattr(module, "SOURCE", ""))
        if hasattr(module, "SOURCE")
    }
