"""Functions and modules under torch.compile that can be timed repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

BACKEND = "inductor"

Work = TypeVar("Work", bound=Callable[..., Any])


def compiled(work: Work) -> Work:
    """`work`, compiled for fixed shapes on its first run, with a backward that can be repeated on one graph.

    By default a compiled backward reuses the memory of the tensors that forward saved, so that it can run only once.
    """
    import torch._functorch.config as functorch_config

    functorch_config.donated_buffer = False
    return cast(Work, torch.compile(work, backend=BACKEND, dynamic=False))
