"""Export a module to torch's graph of operations, or say which operation and line of it cannot be exported."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from predict.bounds.exported.user_file import MetaModule, line_of_error
from sampling.errors import UserError, in_one_line

if TYPE_CHECKING:
    import torch

DATA_DEPENDENT = (
    "the size or the choice depends on the values of a tensor, which the bound of a shape cannot know; replace it by sizes that "
    "are known, as a fixed capacity, torch.where, or the same number of tokens for each expert"
)


def export(made: MetaModule, path: Path) -> torch.export.ExportedProgram:
    """The forward of a module as torch exports it; UserError, with the operation and the line, for one that cannot be."""
    import torch

    with contextlib.redirect_stdout(sys.stderr), _quiet(), torch.device("meta"):
        try:
            return torch.export.export(made.module, made.positional, made.named, strict=False)
        except Exception as error:
            raise UserError(_why(error, path)) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context without torch's own report of a failure, which is pages long."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _why(error: Exception, path: Path) -> str:
    where = line_of_error(error, path) or str(path)
    operation = _operation(error, where)
    if _is_data_dependent(error):
        return f"{where}: {operation} cannot be exported: {DATA_DEPENDENT}"
    return f"{where}: {operation} cannot be exported: {in_one_line(error)}; mend it, or leave it out of the module"


def _is_data_dependent(error: BaseException) -> bool:
    texts = f"{type(error).__name__} {error}"
    return bool(re.search(r"data.dependent|DynamicOutputShape|meta tensors|unbacked", texts, re.IGNORECASE))


def _operation(error: Exception, where: str) -> str:
    """The operation that torch names, else the source of the line."""
    named = getattr(error, "func", None) or re.search(r"aten[.:]+([\w.]+)", str(error))
    if named is not None:
        return str(named.group(0) if isinstance(named, re.Match) else named)
    file, _, line = where.rpartition(":")
    source = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"`{source}`" if source else "the module"
