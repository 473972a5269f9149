"""Launch floors of a layer: the least time in which the host launches the kernels of each phase."""

from __future__ import annotations

from collections.abc import Mapping

from predict.model.layer_kinds import LayerKind
from predict.workload.rank.share import RankShare
from sampling.call import Phase

LEFT_TO_THE_HOST: Mapping[str, float] = {"none": 1.0, "layers": 0.5, "full": 0.0}
"""Share of a mixture layer's launches that stay outside of graphs: those of attention, router and preparing the exchange, about half
of some 250, lie in graphs of `layers`; exchange, permutation and experts do not (Megatron-Core, --cuda-graph-scope)."""
BACKWARD = 2.0
"""Launches of a mixture layer's backward over those of its forward: each product has two."""


def launch_floors_us(rank: RankShare, kind: LayerKind) -> Mapping[Phase, float]:
    """µs per phase of one layer of a kind; a mixture has its own floor in addition to that of any layer."""
    execution = rank.execution
    own = execution.expert_launch_us * LEFT_TO_THE_HOST[execution.cuda_graphs] if kind.sparse else 0.0
    every = 0.0 if execution.cuda_graphs == "full" else execution.launch_floor_us
    backward = every + BACKWARD * own
    return {
        "forward": every + own,
        "backward": backward,
        "backward_input": every + BACKWARD * own / 2,
        "backward_weight": every + BACKWARD * own / 2,
    }
