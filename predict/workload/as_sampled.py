"""Calls as a sampler times them, where a run names a kernel that it cannot ask its software for."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from predict.run.execution import ATTENTION_KERNELS
from sampling.call import Call
from sampling.operators.attention import Attention
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.routing import Permute, Router, Unpermute

Kind = TypeVar("Kind", bound=Call)


def as_sampled(call: Kind) -> Kind:
    """A framework's own kernel of attention, experts, router or permutation as the software's own choice; other calls unchanged."""
    if isinstance(call, Attention) and call.kernel in ATTENTION_KERNELS:
        return replace(call, kernel="")
    if isinstance(call, GroupedGemm) and call.kernel in (PER_EXPERT, IN_GRAPH):
        return replace(call, kernel="")
    if isinstance(call, Router):
        return replace(call, product="fp32")
    if isinstance(call, Permute | Unpermute):
        return replace(call, fused=False)
    return call
