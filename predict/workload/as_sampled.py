"""Calls as a sampler times them, where a run names a kernel that it cannot ask its software for."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from predict.run.execution import ATTENTION_KERNELS
from sampling.call import Call
from sampling.operators.attention import Attention

Kind = TypeVar("Kind", bound=Call)


def as_sampled(call: Kind) -> Kind:
    """Attention by a framework's kernel as attention by the software's own choice, which its row names; other calls unchanged."""
    if isinstance(call, Attention) and call.kernel in ATTENTION_KERNELS:
        return replace(call, kernel="")
    return call
