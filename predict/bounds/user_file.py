"""A user's file with a `Model` and its inputs, run as Python with every new tensor on the meta device, which allocates none, and
exported to torch's graph of operations. What cannot be exported is reported with its operation and line."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sampling.errors import UserError, in_one_line
from sampling.extras import require_library
from sampling.files.disk import is_file
from sampling.files.faults import did_you_mean

if TYPE_CHECKING:
    import torch


MODULE, INPUTS, SETTINGS = "Model", "get_inputs", "get_init_inputs"
TORCH_DTYPE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32", "fp8": "bfloat16"}
"""The type in which a module of a precision is exported; few of torch's operations take fp8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetaModule:
    """A module and the arguments of its forward, on the meta device."""

    module: torch.nn.Module
    positional: tuple[Any, ...]
    named: dict[str, Any]


def load_module(path: Path, precision: str) -> MetaModule:
    """Run the file, and make its `Model(*get_init_inputs())` and `get_inputs()` with floating-point tensors of the precision.

    UserError where there is no such file or name, and with the line where its code fails.
    """
    require_library("torch")
    if not is_file(path):
        raise UserError(f"{path}: there is no such file; give a .py file with {MODULE} and {INPUTS}()")
    import torch

    dtype = getattr(torch, TORCH_DTYPE[precision])
    with _as_users_code(path, "running it"), torch.device("meta"):
        names = _run(path)
    _require_names(path, names)
    with _as_users_code(path, f"{MODULE}(*{SETTINGS}())"), torch.device("meta"):
        settings = names[SETTINGS]() if SETTINGS in names else []
        module = names[MODULE](**settings) if isinstance(settings, dict) else names[MODULE](*settings)
    with _as_users_code(path, f"{INPUTS}()"), torch.device("meta"):
        inputs = names[INPUTS]()
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"{path}: {MODULE} makes a {type(module).__name__}; make it a torch.nn.Module")
    if not isinstance(inputs, (list, tuple, dict)):
        raise UserError(f"{path}: {INPUTS}() returns {type(inputs).__name__}; return a list of forward's arguments")
    with _as_users_code(path, "moving it to the meta device"):
        module = module.to(device="meta", dtype=dtype)
    moved = _moved(inputs, dtype)
    by_name = isinstance(moved, dict)
    return MetaModule(module=module, positional=() if by_name else tuple(moved), named=dict(moved) if by_name else {})


def _run(path: Path) -> dict[str, Any]:
    """The names of the file, run as a module of its own, which may import the files next to it."""
    module = ModuleType(f"speed_of_light_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickling look it up there
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(str(path.parent))
    return module.__dict__


def _require_names(path: Path, names: dict[str, Any]) -> None:
    missing = [name for name in (MODULE, INPUTS) if not callable(names.get(name))]
    if missing:
        given = [name for name in names if not name.startswith("__")]
        stated = "; ".join(
            f"{path}: {name}: {'not callable' if name in names else 'missing' + did_you_mean(name, given)}"
            for name in missing
        )
        raise UserError(
            f"{stated}; define class {MODULE}(torch.nn.Module) and {INPUTS}(), which returns forward's arguments"
        )


def _moved(value: Any, dtype: torch.dtype) -> Any:
    """The value with every tensor on the meta device, and floating-point ones in `dtype`."""
    import torch

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to("meta", dtype) if leaf.is_floating_point() else leaf.to("meta")

    return torch.utils._pytree.tree_map(one, value)


@contextlib.contextmanager
def _as_users_code(path: Path, doing: str) -> Iterator[None]:
    """Context in which an error is a UserError that names the line of the file, and what is printed goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except UserError:
        raise
    except SyntaxError as error:
        raise UserError(
            f"{error.filename}:{error.lineno}: not valid Python: {error.msg}; mend the syntax there"
        ) from None
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{line_of_error(error, path) or path}: {doing} failed: {in_one_line(error)}; mend it"
        ) from error


def line_of_error(error: BaseException, path: Path) -> str:
    """`file:line` where the user's code is left, the innermost line of the file; '' where no line of it is involved."""
    place = ""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        own = [frame for frame in traceback.extract_tb(each.__traceback__) if frame.filename == str(path)]
        place = place or (f"{path}:{own[-1].lineno}" if own else "")
        each = each.__cause__ or each.__context__
    return place


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
        except (Exception, SystemExit) as error:
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


def _why(error: BaseException, path: Path) -> str:
    where = line_of_error(error, path) or str(path)
    operation = _operation(error, where)
    if _is_data_dependent(error):
        return f"{where}: {operation} cannot be exported: {DATA_DEPENDENT}"
    return f"{where}: {operation} cannot be exported: {in_one_line(error)}; mend it, or leave it out of the module"


def _is_data_dependent(error: BaseException) -> bool:
    texts = f"{type(error).__name__} {error}"
    return bool(re.search(r"data.dependent|DynamicOutputShape|meta tensors|unbacked", texts, re.IGNORECASE))


def _operation(error: BaseException, where: str) -> str:
    """The operation that torch names, else the source of the line."""
    named = getattr(error, "func", None) or re.search(r"aten[.:]+([\w.]+)", str(error))
    if named is not None:
        return str(named.group(0) if isinstance(named, re.Match) else named)
    file, _, line = where.rpartition(":")
    source = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"`{source}`" if source else "the module"
