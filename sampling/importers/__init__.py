"""Other people's measurements, as samples of ours: never beside those that our own sampler took.

An importer is a module in here with a `SOURCE`, the name it is called by, and `read(request)`, which makes tables.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

from sampling.importers.table import Request, Table

Importer = Callable[[Request], list[Table]]


def importers() -> dict[str, Importer]:
    """Every importer by its name."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {module.SOURCE: module.read for module in modules if hasattr(module, "SOURCE") and hasattr(module, "read")}
