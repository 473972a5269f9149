"""Launch floors of a layer: the least time in which the host launches the kernels of each phase."""

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
