"""Functions and modules under torch.compile, fit to be timed over and over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

BACKEND = "inductor"

Work = TypeVar("Work", bound=Callable[..., Any])


def compiled(work: Work) -> Work:
    """`work` compiled for fixed shapes on its first run. Its backward may be repeated on one graph.

    A compiled backward else reuses the memory of what forward saved, which it can do but once.
    """
    import torch._functorch.config as functorch_config

    functorch_config.donated_buffer = False
    return cast(Work, torch.compile(work, backend=BACKEND, dynamic=False))
