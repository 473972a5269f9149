"""Composition error: how far a step composed of well-known calls still misses the real one.

The half-width in log time, at 90 %, that no single call's interval covers. Where samples cover the work it is the error of
the profile's validation runs (`predict.prices.profile_error`), else the spread of published runs, by the terms below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from predict.run.frameworks import framework_spread
from predict.run.plan import BEST
from predict.run.stages import layers_of_ranks
from predict.run.training_run import TrainingRun
from predict.step.stragglers import stragglers_factor
from predict.workload.layers.expert_load import busiest_rank

PRIOR = 0.10
"""A 16-bit dense step of a profile without validation runs: published runs of Megatron on H100 lie within 8 % at
80 % of what samples imply, so within 10 % at 90 %."""
FP8 = 0.11
"""Added for fp8: the same runs lie within 12 % at 80 %, and containers differ by 1.06."""
WELL_KNOWN = ("ampere", "hopper")
FEW_STACKS = 0.19
"""Added on other architectures, of which few stacks were sampled or none: Blackwell lies within 17 % at 80 %."""
EXPERTS = 0.5
"""Added for a mixture of experts: within 45-57 % at 80 %; the same configuration differs by 1.28 between containers, with
dispatcher, graphs, permutation and imbalance unpublished."""
SKEW_SHARE = 0.5
"""Share of the cost of skewed experts that is added: the skew changes from step to step."""
UNEVEN_SHARE = 0.1
"""Share of the longest pipeline stage's excess over the mean that is added: how embedding, head and layers weigh against each
other is less known."""


def composition_error(run: TrainingRun, profile_error: float | None, sources: Mapping[str, float]) -> float:
    """Half-width in log time at 90 %: the profile's error for the share of the work that samples cover; for the rest the spread of
    published runs, and no less than that error, since work that nobody sampled is known no better. That spread alone where no
    validation runs tell (`profile_error` None)."""
    prior = published_spread(run)
    if profile_error is None:
        return prior
    prior = max(prior, profile_error)
    analytic = sources["analytic"]
    return (1 - analytic) * profile_error + analytic * prior


def published_spread(run: TrainingRun) -> float:
    """Half-width in log time at 90 % of published runs of this kind about what their parts imply; terms add in quadrature."""
    terms = [PRIOR, framework_spread(run.execution.framework)]
    if run.precision == "fp8":
        terms.append(FP8)
    if run.cluster.gpu.kind != "cpu" and run.cluster.gpu.architecture not in WELL_KNOWN:
        terms.append(FEW_STACKS)
    if run.model.experts:
        skew = busiest_rank(run.execution.expert_load, run.model.experts, run.plan.ep)
        terms += [EXPERTS, SKEW_SHARE * math.log(skew)]
    terms += [stragglers_factor(run) - 1, UNEVEN_SHARE * _unevenness(run)]
    return math.hypot(*terms)


def _unevenness(run: TrainingRun) -> float:
    """Most layers of a pipeline rank over the mean, less 1."""
    plan = run.plan
    if plan.pp == 1 or plan.schedule == BEST:
        return 0.0
    layers = layers_of_ranks(run)
    return max(layers) * len(layers) / sum(layers) - 1
