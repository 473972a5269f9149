"""The smallest cluster that a plan can run on: one replica of everything that is spread over ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from predict.run.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestCluster:
    """GPUs and nodes of one replica."""

    gpus: int
    nodes: int
    folded: bool
    """Experts share the ranks of attention."""
    unfolded_gpus: int
    """GPUs with experts on ranks of their own, as in plans without parallel folding."""


def smallest_cluster(run: TrainingRun) -> SmallestCluster:
    """tp · pp · cp for a dense model; with experts, the least that both tp · cp and etp · ep tile (Liu et al., MoE Parallel
    Folding, arXiv 2504.14960)."""
    plan = run.plan
    attention, experts = plan.tp * plan.cp, plan.etp * plan.ep
    gpus = plan.pp * math.lcm(attention, experts)
    return SmallestCluster(
        gpus=gpus,
        nodes=-(-gpus // run.cluster.gpus_per_node),
        folded=experts > 1,
        unfolded_gpus=plan.pp * attention * plan.ep,
    )
