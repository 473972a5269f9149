"""Other people's measurements as samples, always in profiles of their own.

An importer is a module of this folder with

- `SOURCE`, the name that `python -m sampling import` calls it by,
- `PATH`, what the user gives as its path,
- `read(request)`, which turns the files there into tables.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sampling.additions import add, modules_of
from sampling.importers.table import ImportRequest, Table, as_published


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
    found: dict[str, Importer] = {}
    for module in modules_of(__name__):
        if hasattr(module, "SOURCE"):
            add(found, module.SOURCE, Importer(path=module.PATH, read=module.read), "importers")
    return dict(sorted(found.items()))
