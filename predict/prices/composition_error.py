"""How far steps composed of well-known calls still miss real ones: the residual of the profile's validation runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from predict.run.frameworks import framework_spread
from predict.run.plan import BEST
from predict.run.stage_layout import split_layers
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.step.stragglers import stragglers_factor
from predict.workload.layers.feed_forward import busiest_rank
from sampling.session.store import DATA

PRIOR = 0.10
"""Of a 16-bit dense step, where no run of the profile was validated: published runs of Megatron on H100 lie within 8 % at
80 % of what samples imply, so within 10 % at 90 %."""
FP8 = 0.11
"""Added for fp8: the same runs lie within 12 % at 80 %, and containers differ by 1.06."""
WELL_KNOWN = ("ampere", "hopper")
FEW_STACKS = 0.19
"""Added on another architecture, of which few stacks were sampled or none: Blackwell lies within 17 % at 80 %."""
EXPERTS = 0.5
"""Added for a mixture of experts: within 45-57 % at 80 %; the same configuration differs by 1.28 between containers, with
dispatcher, graphs, permutation and imbalance unpublished."""
SKEW_SHARE = 0.5
"""Of what a skew of the experts costs: it changes from step to step."""
UNEVEN_SHARE = 0.1
"""Of what the longest pipeline stage holds more than the mean: how ends and layers weigh against each other is less known."""
LEAST_ROWS = 5


def of_step(run: TrainingRun, profile_error: float | None, sources: Mapping[str, float]) -> float:
    """Half-width of log time at 90 %. What samples of the profile do not cover is trusted as far as published runs show."""
    prior = published_spread(run)
    if profile_error is None:
        return prior
    analytic = sources["analytic"]
    return (1 - analytic) * profile_error + analytic * prior


def published_spread(run: TrainingRun) -> float:
    """How far published runs of this kind lie from what the parts imply."""
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
    """Layers of the pipeline rank with most over the mean, less 1."""
    plan = run.plan
    if plan.pp == 1 or plan.schedule == BEST:
        return 0.0
    placement = registry.get(plan.schedule).placement(plan.pp, plan.vpp)
    shares = split_layers(run.model.layers, placement.depth, plan)
    held = [sum(shares[stage] for stage in stages) for stages in placement.stages]
    return max(held) * len(held) / sum(held) - 1


def validation_path(profile: str) -> Path:
    """Where `predict validate` keeps a profile's runs, predicted beside measured."""
    return DATA / "published" / f"{profile}-steps.json"


def composition_error(profile: str) -> float | None:
    """The conformal quantile of |log error| over the profile's validation runs at 90 %; None without enough of them."""
    path = validation_path(profile)
    if not path.is_file():
        return None
    errors = sorted(abs(math.log1p(row["error"])) for row in json.loads(path.read_text())["rows"])
    if len(errors) < LEAST_ROWS:
        return None
    return errors[min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)]
