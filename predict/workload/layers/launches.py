"""Launch floors of a layer, and of a model's ends: the least time in which the host launches the kernels of each phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from predict.model.layer_kinds import LayerKind
from predict.workload.rank.blocks import Launching
from predict.workload.rank.share import RankShare
from sampling.call import Phase

LEFT_TO_THE_HOST: Mapping[str, float] = {"none": 1.0, "layers": 0.5, "full": 0.0}
"""Share of a mixture layer's launches that stay outside of graphs: those of attention, router and preparing the exchange, about half
of some 250, lie in graphs of `layers`; exchange, permutation and experts do not (Megatron-Core, --cuda-graph-scope)."""
BACKWARD = 2.0
"""Launches of a mixture layer's backward over those of its forward: each product has two."""
SHARE_OF_AN_END = 0.5
"""Launches of the embedding, or of the head with its loss, over those of a layer, in either phase. Assumed, not counted: the first are
the data's broadcast, lookups, positions and dropout, the second the norm, the logits and some dozen passes of a parallel loss (Megatron-LM
of 2021), about half of a layer's together with their shorter backwards."""


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


def launchings_of_end(rank: RankShare) -> Mapping[Phase, Launching]:
    """The launching of the embedding, or of the head with its loss, by phase: a share of a dense layer's."""
    execution = rank.execution
    if execution.cuda_graphs == "full" or not execution.launch_floor_us:
        return {}
    whole = Launching(phase="forward", any_layer_us=execution.launch_floor_us, share=SHARE_OF_AN_END, as_sampled=False)
    backward = replace(whole, phase="backward")
    half = replace(backward, share=SHARE_OF_AN_END / 2)
    return {"forward": whole, "backward": backward, "backward_input": half, "backward_weight": half}
