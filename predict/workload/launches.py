"""Launch floors of a layer, and of a model's ends: the least time in which the host launches the kernels of each phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from predict.model.spec import LayerKind
from predict.rank.blocks import Launching
from predict.rank.share import RankShare
from sampling.call import Phase

LEFT_TO_THE_HOST: Mapping[str, float] = {"none": 1.0, "layers": 0.5, "full": 0.0}
"""Share of a mixture layer's launches that stay outside of graphs: those of attention, router and preparing the exchange, about half
of some 250, lie in graphs of `layers`; exchange, permutation and experts do not (Megatron-Core, --cuda-graph-scope)."""
BACKWARD = 2.0
"""Launches of a mixture layer's backward over those of its forward: each product has two."""
End = Literal["embedding", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """Launches of forward and backward: of a dense layer, of the embedding, and of the head with its loss."""

    layer: tuple[int, int]
    embedding: tuple[int, int]
    head: tuple[int, int]

    def shares(self, end: End) -> tuple[float, float]:
        """Launches of an end over those of a layer, in forward and backward."""
        forward, backward = self.head if end == "head" else self.embedding
        return forward / self.layer[0], backward / self.layer[1]


ON_ONE_RANK = Launches(layer=(24, 46), embedding=(1, 2), head=(5, 9))
"""Operators that torch 2.13 dispatches for a Llama in plain torch, views left out (the tests count them again)."""
SPREAD = Launches(layer=(17, 40), embedding=(13, 7), head=(28, 17))
"""The same for a GPT of Megatron-LM 2.5 with its vocabulary over tensor-parallel ranks: masks, lookups, positions and dropout, and the
passes of a parallel loss (mpu/layers.py, mpu/cross_entropy.py); a fused kernel or a collective counts as one. Its code runs the parallel
loss on one rank too, which is not told from plain torch."""


def launchings(rank: RankShare, kind: LayerKind) -> Mapping[Phase, Launching]:
    """The launching of one layer of a kind, by phase; the halves of a split backward share the whole one's. Empty where the host
    bounds nothing."""
    execution = rank.execution
    any_layer_us = 0.0 if execution.cuda_graphs == "full" else execution.launch_floor_us
    mixture_us = execution.expert_launch_us * LEFT_TO_THE_HOST[execution.cuda_graphs] if kind.sparse else 0.0
    if not any_layer_us + mixture_us:
        return {}
    forward = Launching(phase="forward", any_layer_us=any_layer_us, mixture_us=mixture_us, as_sampled=not kind.sparse)
    backward = replace(forward, phase="backward", mixture_us=BACKWARD * mixture_us)
    half = replace(backward, share=0.5)
    return {"forward": forward, "backward": backward, "backward_input": half, "backward_weight": half}


def launchings_of_end(rank: RankShare, end: End) -> Mapping[Phase, Launching]:
    """The launching of the embedding, or of the head with its loss, by phase: a share of a dense layer's."""
    execution = rank.execution
    if execution.cuda_graphs == "full" or not execution.launch_floor_us:
        return {}
    spread = rank.plan.tp > 1 and (end == "embedding" or execution.split_loss)
    of_forward, of_backward = (SPREAD if spread else ON_ONE_RANK).shares(end)
    forward = Launching(phase="forward", any_layer_us=execution.launch_floor_us, share=of_forward, as_sampled=False)
    backward = replace(forward, phase="backward", share=of_backward)
    half = replace(backward, share=of_backward / 2)
    return {"forward": forward, "backward": backward, "backward_input": half, "backward_weight": half}
