"""Functions and modules under torch.compile that can be timed repeatedly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

BACKEND = "inductor"

Work = TypeVar("Work", bound=Callable[..., Any])


def compiled(work: Work) -> Work:
    """`work`, compiled for fixed shapes on its first run, with a backward that can be repeated on one graph.

    By default a compiled backward reuses the memory of the tensors that forward saved, so that it can run only once; and a
    function that has met more shapes than the limit (8) runs eager from then on. Here that is an error.
    """
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config

    functorch_config.donated_buffer = False
    dynamo_config.fail_on_recompile_limit_hit = True
    return cast(Work, torch.compile(work, backend=BACKEND, dynamic=False))


def forget_compiled() -> None:
    """Drop what earlier calls compiled: they count against the limit of shapes of the functions that this one shares with them."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
