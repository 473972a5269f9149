"""The composition error: how far a step composed of well-known calls still misses the real one, and what a calibration leaves of it.

It is the half-width in log time, at 90 %, that no single call's interval covers. Where samples cover the work it is the error of the
profile's validation runs (`predict.prices.sampled`), else the spread of published runs, by the terms below.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from predict.interval import width_of_step, without_cause
from predict.layers.routing import UNTOUCHED_MOST, busiest_rank
from predict.prices.price_list import Prices
from predict.prices.published_constants import CONSTANTS
from predict.prices.sample_provenance import ANOTHER_CPU
from predict.run.calibration_file import scaled
from predict.run.calibration_terms import NINETY, TERMS, Calibration, Posterior, prior_covariance
from predict.run.execution import UNTOUCHED
from predict.run.frameworks import framework_spread
from predict.run.plan import BEST
from predict.run.stages import layers_of_ranks
from predict.run.training_run import TrainingRun
from predict.step.priced_rank import stragglers_factor

PUBLISHED = ("ampere", "hopper", "blackwell")
"""Architectures of which published runs are known, whatever is known of their kernels; fp8 and Blackwell add nothing
beyond what their calls' own intervals hold."""
UNPUBLISHED = 0.21
"""Added on other architectures. Assumed: Blackwell's steps were as far off when few of its stacks were known."""
SKEW_SHARE = 0.5
"""Share of the cost of skewed experts that is added: the skew changes from step to step."""
UNEVEN_SHARE = 0.1
"""Share of the longest pipeline stage's excess over the mean that is added: how embedding, head and layers weigh against each
other is less known."""
OWN_SHARE = 0.5
"""Least share of a step's variance that is the run's own, however much of it the terms of a calibration stand for. Assumed."""
VALIDATED = "the profile's validation runs"


def composition_error(
    run: TrainingRun, profile_error: float | None, sources: Mapping[str, float], *, of_machine: bool = True
) -> float:
    """Half-width in log time at 90 %: the profile's error for the share of the work that samples cover, the spread of published
    runs for the rest; for all of it where the profile has no validation runs (`profile_error` None). It includes what all runs of the
    machine share, if `of_machine`."""
    prior = published_spread(run) if of_machine else without_cause(published_spread(run), machine_error(run))
    if profile_error is None:
        return prior
    analytic = sources.get("analytic", 0.0)
    return (1 - analytic) * profile_error + analytic * prior


def width_beyond_calls(run: TrainingRun, prices: Prices, sources: Mapping[str, float]) -> float:
    """Half-width in log time at 90 % that no single call's interval covers, of a training step as of any work of the run: the composition
    error, that of rows of another CPU, and the machine's pace."""
    return width_of_step(
        composition_error(run, prices.profile_error, sources),
        transfer_error(prices, sources),
        error_of_stated(run, sources),
        pace_error(prices, sources),
    )


def transfer_error(prices: Prices, sources: Mapping[str, float]) -> float:
    """Half-width in log time at 90 % that rows of another CPU add, by their share of the work."""
    return sources.get("transferred", 0.0) * prices.transfer_error


def error_of_stated(run: TrainingRun, sources: Mapping[str, float]) -> float:
    """Half-width in log time at 90 % that the stated peaks and links of a CPU add, which nobody looked up, by the share of the work that
    no rows cover."""
    return sources.get("analytic", 0.0) * ANOTHER_CPU if run.cluster.gpu.kind == "cpu" else 0.0


def pace_error(prices: Prices, sources: Mapping[str, float]) -> float:
    """Half-width in log time at 90 % that the pace of the machine adds at a moment, by the share of the work that was timed on it."""
    return sources.get("measured", 0.0) * prices.pace_spread


def error_terms(run: TrainingRun, profile_error: float | None, sources: Mapping[str, float]) -> dict[str, float]:
    """The parts of the composition error by what is unknown, widest first: half-widths in log time at 90 %."""
    share = 1.0 if profile_error is None else sources["analytic"]
    terms = {name: share * width for name, width in unknowns(run).items()}
    if profile_error is not None:
        terms[VALIDATED] = (1 - share) * profile_error
    return dict(sorted(((name, width) for name, width in terms.items() if width), key=lambda term: -term[1]))


def published_spread(run: TrainingRun) -> float:
    """Half-width in log time at 90 % of published runs of this kind about what their parts imply; terms add in quadrature."""
    return width_of_step(*unknowns(run).values())


def unknowns(run: TrainingRun) -> dict[str, float]:
    """The unknowns of steps of this kind: half-widths in log time at 90 %."""
    framework = run.execution.framework
    terms = {
        "composition of calls into a step": CONSTANTS["DENSE_STEP"].value,
        f"framework {framework}": framework_spread(framework),
    }
    if unpublished := machine_error(run):
        terms[f"no published runs on {run.cluster.gpu.architecture}"] = unpublished
    if run.model.experts:
        terms["mixture of experts"] = CONSTANTS["MIXTURE_STEP"].value
    if run.adapters.are_trained:
        terms["adapters"] = CONSTANTS["ADAPTED_STEP"].value
    return terms | particulars(run)


def machine_error(run: TrainingRun) -> float:
    """The half-width that all runs of the machine share, since nothing was published of its architecture."""
    gpu = run.cluster.gpu
    return UNPUBLISHED if gpu.kind != "cpu" and gpu.architecture not in PUBLISHED else 0.0


def particulars(run: TrainingRun) -> dict[str, float]:
    """The unknowns that follow from the run's own figures rather than from its kind: half-widths in log time at 90 %."""
    terms = {"stragglers": stragglers_factor(run) - 1, "uneven pipeline stages": UNEVEN_SHARE * _unevenness(run)}
    if run.model.experts:
        skew = busiest_rank(run.execution.expert_load, run.model.experts, run.plan.ep)
        untouched = run.execution.expert_load == UNTOUCHED
        terms["skew of the experts"] = math.log(UNTOUCHED_MOST) / 2 if untouched else SKEW_SHARE * math.log(skew)
    return terms


def _unevenness(run: TrainingRun) -> float:
    """Most layers of a pipeline rank over the mean, less 1."""
    plan = run.plan
    if plan.pp == 1 or plan.schedule == BEST:
        return 0.0
    layers = layers_of_ranks(run)
    return max(layers) * len(layers) / sum(layers) - 1


def calibrated_half_width(half_width: float, posterior: Posterior, elasticities: Sequence[float]) -> float:
    """Half-width in log time at 90 % of a step that a calibration leaves, of which `half_width` is the uncalibrated one without what all
    runs of the machine share: what is still unknown of its terms, by how the step depends on them, and the run's own."""
    by = np.array(elasticities)
    of_terms = math.sqrt(max(0.0, float(by @ np.array(posterior.covariance) @ by)))  # digits that the file drops
    return NINETY * width_of_step(of_terms, posterior.scatter * own_deviation(half_width, elasticities))


def own_deviation(half_width: float, elasticities: Sequence[float]) -> float:
    """Standard deviation of a run's logarithm about what the terms explain: the part of its half-width at 90 % that is not theirs before
    any run is measured, so that an interval narrows by as much as measured runs say of the terms, and by no more."""
    variance, by = (half_width / NINETY) ** 2, np.array(elasticities)
    of_terms = float(by @ prior_covariance() @ by)
    return math.sqrt(max(variance - of_terms, OWN_SHARE * variance))


NUDGE = 0.02
"""Change of a term's logarithm: larger than rounding, smaller than where a hidden collective comes out."""


def elasticities(run: TrainingRun, step_us: Callable[[TrainingRun], float]) -> tuple[float, ...]:
    """Derivatives of the step's logarithm by those of the terms, in their order, at the run as it is; `step_us` predicts one."""
    base_us = step_us(run)
    return tuple(
        math.log(step_us(scaled(run, Calibration(**{name: math.exp(NUDGE)}))) / base_us) / NUDGE for name in TERMS
    )
