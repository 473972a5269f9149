"""Calls built in torch. The torch work of `sampling/X.py` is in `sampling/torch_work/X.py`: functions marked `@builds`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sampling.call import Call
from sampling.errors import SkippedError
from sampling.torch_work.workload_protocols import Workload

Kind = TypeVar("Kind", bound=Call)
Builder = Callable[[Kind, torch.device], Workload]
_BUILDERS: dict[type[Call], Builder[Any]] = {}


def builds(kind: type[Kind]) -> Callable[[Builder[Kind]], Builder[Kind]]:
    """Decorator: the function makes the workload of calls of this class, and of its subclasses without a builder."""

    def register(builder: Builder[Kind]) -> Builder[Kind]:
        _BUILDERS[kind] = builder
        return builder

    return register


def build(call: Call, device: torch.device) -> Workload:
    """Make the call's tensors and modules on a device. Raises SkippedError for a call that cannot run there."""
    for kind in type(call).__mro__:
        if kind not in _BUILDERS:
            _import_torch_work(kind.__module__)
        if kind in _BUILDERS:
            return _BUILDERS[kind](call, device)
    raise SkippedError(
        f"{call.NAME}: nothing in sampling/torch_work builds it; add a function with @builds({type(call).__name__})"
    )


def _import_torch_work(module: str) -> None:
    """Import the torch work of a module only now: that of layers takes seconds, which single operators do not need."""
    package, _, name = module.partition(".")
    torch_work = f"sampling.torch_work.{name}"
    if package == "sampling" and "." in name and importlib.util.find_spec(torch_work):
        importlib.import_module(torch_work)
