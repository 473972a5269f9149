"""Calls built in torch: a function per class of call, registered with `@builds` in any file of FOLDERS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sampling.call import Call
from sampling.catalogue import import_all
from sampling.errors import SkippedError
from sampling.torch_work.workload_protocols import Workload

FOLDERS = ("sampling.torch_work.collectives", "sampling.torch_work.operators", "sampling.torch_work.cells")

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
    import_all(*FOLDERS)
    for kind in type(call).__mro__:
        if kind in _BUILDERS:
            return _BUILDERS[kind](call, device)
    raise SkippedError(
        f"{call.NAME}: nothing in sampling/torch_work builds it; add a function with @builds({type(call).__name__})"
    )
