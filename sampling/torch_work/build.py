"""Calls built in torch. The torch work of `sampling/X.py` is in `sampling/torch_work/X.py`: functions marked `@builds`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sampling.additions import add
from sampling.call import Call
from sampling.errors import SkippedError
from sampling.torch_work.workload_protocols import Workload

Kind = TypeVar("Kind", bound=Call)
Builder = Callable[[Kind, torch.device], Workload]
_BUILDERS: dict[type[Call], Builder[Any]] = {}


def builds(kind: type[Kind]) -> Callable[[Builder[Kind]], Builder[Kind]]:
    """Decorator: the function makes the workload of calls of this class, and of its subclasses without a builder."""

    def register(builder: Builder[Kind]) -> Builder[Kind]:
        add(_BUILDERS, kind, builder, "builders")
        return builder

    return register


def build(call: Call, device: torch.device) -> Workload:
    """Make the call's tensors and modules on a device. Raises SkippedError for a call that cannot run there."""
    builder = builder_of(type(call))
    if builder is None:
        raise SkippedError(
            f"{call.NAME}: nothing in sampling/torch_work builds it; add a function with @builds({type(call).__name__})"
        )
    return builder(call, device)


def builder_of(kind: type[Call]) -> Builder[Any] | None:
    """The builder of the class or of its nearest base class that has one."""
    for base in kind.__mro__:
        if base not in _BUILDERS:
            _import_torch_work(base.__module__)
        if base in _BUILDERS:
            return _BUILDERS[base]
    return None


def _import_torch_work(module: str) -> None:
    """Import the torch work of a module, if it has any, only now: that of layers takes seconds."""
    package, _, name = module.partition(".")
    if package != "sampling":
        return
    torch_work = f"sampling.torch_work.{name}"
    try:
        importlib.import_module(torch_work)
    except ModuleNotFoundError as error:
        if not f"{torch_work}.".startswith(f"{error.name}."):
            raise
