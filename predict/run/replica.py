"""One replica of a plan: the ranks that everything but data parallelism spreads over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from predict.run.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """GPUs of the smallest whole copy of a plan, its experts included; whether they fit in memory is another matter."""

    gpus: int
    dp: int
    """Data-parallel ranks of attention in it: above 1 only where experts spread over more ranks than attention does."""
    folded: bool
    """Experts share the ranks of attention."""
    unfolded_gpus: int
    """GPUs with experts on ranks of their own, as in plans without parallel folding."""


def one_replica(run: TrainingRun) -> Replica:
    """tp · pp · cp for a dense model; with experts, the least that both tp · cp and etp · ep tile (Liu et al., MoE Parallel
    Folding, arXiv 2504.14960)."""
    plan = run.plan
    attention, experts = plan.tp * plan.cp, plan.etp * plan.ep
    ranks = math.lcm(attention, experts)
    return Replica(
        gpus=plan.pp * ranks,
        dp=ranks // attention,
        folded=experts > 1,
        unfolded_gpus=plan.pp * attention * plan.ep,
    )
