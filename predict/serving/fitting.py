"""Coefficients fitted to measured loads, and how well they do on experiments that they were not fitted to."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from predict.run.calibration_terms import NINETY
from predict.serving.batch import Seen, keys_within, pairs_within
from predict.serving.coefficients import Client, Coefficients, Weight
from predict.serving.server import EngineSettings, Server
from predict.serving.step_model import Features, StepModel, StepTerm, sums
from predict.serving.traffic import Load
from regressors.features.arrays import Floats
from sampling.errors import UserError
from sampling.files.faults import counted
from sampling.units import SECOND_US

# Least squares within bounds, with a normal prior on each weight: convex, so that any descent finds the one answer.

MOST_ROUNDS = 200
CLOSE = 1e-9
TINY = 1e-300


def bounded_weights(
    features: Floats, target: Floats, importance: Floats, terms: Sequence[StepTerm], error: float
) -> Floats:
    """The weights that minimise Σ importance²·(features·w / target − 1)² / error² + Σ ((w − prior) / width)² within the bounds.

    `error` is the relative error that the model keeps at best, in whose units the prior counts. A term of width 0 keeps its prior.
    """
    rows, precision = _in_units(features, target, importance, error), _precision(terms)
    prior = np.array([term.prior for term in terms])
    low, high = np.array([term.low for term in terms]), np.array([term.high for term in terms])
    square = rows.T @ rows + np.diag(precision)
    wanted = rows.T @ (importance / error) + precision * prior
    return _within(square, wanted, low, high)


def deviations(features: Floats, target: Floats, importance: Floats, terms: Sequence[StepTerm], error: float) -> Floats:
    """Standard deviation of each weight by the same rows and priors, without the bounds: the prior's where no row bears on the weight;
    0 for a term that keeps its prior."""
    free = np.array([term.width > 0 for term in terms])
    rows = _in_units(features, target, importance, error)[:, free]
    square = rows.T @ rows + np.diag(_precision(terms)[free])
    found = np.zeros(len(terms))
    found[free] = np.sqrt(np.diag(np.linalg.inv(square)))
    return found


def _in_units(features: Floats, target: Floats, importance: Floats, error: float) -> Floats:
    """Features over the target, in units of the error that a row of that importance has."""
    scaled: Floats = features * (importance / target / error)[:, None]
    return scaled


def _precision(terms: Sequence[StepTerm]) -> Floats:
    return np.array([1 / term.width**2 if term.width else 0.0 for term in terms])


def _within(square: Floats, wanted: Floats, low: Floats, high: Floats) -> Floats:
    """The minimum of w·square·w / 2 − wanted·w within bounds: weights are held at a bound while the slope pushes them beyond it."""
    held = np.where(low == high, low, np.nan)
    for _ in range(MOST_ROUNDS):
        free = np.isnan(held)
        weights = held.copy()
        known = wanted[free] - square[np.ix_(free, ~free)] @ held[~free]
        weights[free] = np.linalg.lstsq(square[np.ix_(free, free)], known, rcond=None)[0]
        beyond = np.maximum(low - weights, weights - high) / np.maximum(high - low, TINY)
        beyond[~free] = 0.0
        if beyond.max() > CLOSE:
            worst = int(beyond.argmax())
            held[worst] = low[worst] if weights[worst] < low[worst] else high[worst]
            continue
        slope = square @ weights - wanted
        pulled = np.where(~free & (low < high), np.where(held == low, -slope, slope), 0.0)
        if pulled.max() <= CLOSE * np.abs(wanted).max():
            break
        held[int(pulled.argmax())] = np.nan
    return np.clip(weights, low, high)


# Steady loads whose time per output token was measured, as the mean features of their steps.
#
# A load of `rate` requests per second keeps rate · (n − 1) · TPOT of them decoding (Little's law); the numbers in single steps scatter
# about it as Poisson's.

DEVIATIONS = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
"""Standard deviations of a normal at its quantiles 0.1, 0.3, 0.5, 0.7 and 0.9."""

MORE = 0.05
"""Share of requests by which the batch is made larger to see how the step grows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """One load on one server, and its measured time per output token."""

    experiment: str
    """Rows of one experiment are left out together."""
    engine: EngineSettings
    load: Load
    """One replica's, at a rate."""
    tpot_us: float
    seen: Seen
    """The keys that a query sees of layers with a window."""


def mean_features(observed: Observed, features: Features) -> Floats:
    """The features of a step, on average."""
    return _features_at(observed, features, decoding(observed))


def decoding(observed: Observed) -> float:
    """Requests that decode, on average."""
    load = observed.load
    found = load.rate * (load.output - 1) * observed.tpot_us / SECOND_US
    return min(found, float(observed.engine.max_num_seqs))


def growth(observed: Observed, features: Features) -> Floats:
    """The change of the mean features per µs of the time per token: a slower step lets requests pile up, which slows it further."""
    mean = decoding(observed)
    more = _features_at(observed, features, (1 + MORE) * mean) - _features_at(observed, features, mean)
    per_us = observed.load.rate * (observed.load.output - 1) / SECOND_US
    found: Floats = more / (MORE * mean) * per_us
    return found


def _features_at(observed: Observed, features: Features, mean: float) -> Floats:
    engine, load = observed.engine, observed.load
    decodes = np.clip(np.rint(mean + math.sqrt(mean) * np.array(DEVIATIONS)), 1, engine.max_num_seqs)
    context = decodes * (load.prompt + load.output / 2)
    window_keys = decodes * pairs_within(load.prompt, load.output, observed.seen) / load.output
    joining = load.rate * observed.tpot_us / SECOND_US
    mixed = -math.expm1(-joining)
    chunks = joining / mixed
    tokens = uncached_tokens(engine, load)
    found_tokens = load.prompt - tokens
    pure = features(sums(decodes=decodes, decode_context=context, window_keys=window_keys))
    with_chunks = features(
        sums(
            decodes=decodes,
            decode_context=context,
            window_keys=window_keys,
            prefills=chunks,
            prefill_tokens=chunks * tokens,
            prefill_context=chunks * found_tokens,
            prefill_pairs=chunks * pairs_within(found_tokens, tokens, Seen()),
            window_context=chunks * keys_within(found_tokens, observed.seen),
            window_pairs=chunks * pairs_within(found_tokens, tokens, observed.seen),
            whole_prompt_pairs=chunks * tokens * (load.prompt + tokens / 2),
        )
    )
    found: Floats = ((1 - mixed) * pure + mixed * with_chunks).mean(axis=0)
    return found


def uncached_tokens(engine: EngineSettings, load: Load) -> int:
    """Tokens of a prompt that are not found in the cache, once every prompt was sent."""
    shared = load.prompt if load.distinct_prompts else load.shared_tokens
    if not engine.prefix_caching:
        return load.prompt
    return load.prompt - min(shared, load.prompt - 1) // engine.block_size * engine.block_size


ERROR = 0.05
"""Relative error that a model of a step keeps at best, in whose units the priors count."""
ROUNDS = 4
"""Each takes the rows' importance from the weights of the one before."""
LEAST_MISS = 0.02
"""Relative misses below this count alike; a larger one counts by its size, not by its square, so that no single row decides."""
LEAST_DAMPING = 0.2
"""Bound of 1 − growth, near the load at which requests pile up without end."""
NINETY_PERCENT = 0.9


@dataclass(frozen=True, eq=False)
class CoefficientFit:
    """A model on measured loads. Its weights are those that keep the simulated time per token closest to the measured one."""

    model: StepModel
    observed: Sequence[Observed]
    features: Sequence[Features]

    @cached_property
    def rows(self) -> Floats:
        """Mean features, one row per load."""
        return np.array([mean_features(one, of) for one, of in zip(self.observed, self.features, strict=True)])

    @cached_property
    def growths(self) -> Floats:
        """Their change per µs of the time per token, one row per load."""
        return np.array([growth(one, of) for one, of in zip(self.observed, self.features, strict=True)])

    @cached_property
    def measured_us(self) -> Floats:
        return np.array([one.tpot_us for one in self.observed])

    @cached_property
    def weights(self) -> Floats:
        """Fitted to all loads."""
        return self._fitted(np.full(len(self.observed), True))

    def without(self, *experiments: str) -> Floats:
        """Fitted to all loads but those of some experiments."""
        return self._fitted(np.array([one.experiment not in experiments for one in self.observed]))

    def errors(self, weights: Floats) -> Floats:
        """The signed relative error of each load's time per token in a simulation, to first order: that of a step at the measured load,
        grown by what a slower step lets requests pile up."""
        found: Floats = _grown(self.growths, weights) * (self.rows @ weights / self.measured_us - 1)
        return found

    def named(self, weights: Floats) -> dict[str, float]:
        return dict(zip(self.model.terms, map(float, weights), strict=True))

    @cached_property
    def left_out(self) -> Mapping[str, Floats]:
        """Experiment → the weights fitted without it."""
        return {name: self.without(name) for name in dict.fromkeys(one.experiment for one in self.observed)}

    def half_width(self) -> float:
        """Half-width in log time that covers 90 % of the loads whose experiment was left out."""
        weights = np.array([self.left_out[one.experiment] for one in self.observed])
        misses = np.abs(np.log((self.rows * weights).sum(axis=1) / self.measured_us))
        return float(np.quantile(misses, NINETY_PERCENT))

    def intervals(self) -> tuple[Floats, Floats]:
        """The 90 % interval of each weight: from the weights without one experiment each (the jackknife), or from the rows' own errors and
        the priors where that is wider, as it is where few experiments are alike."""
        each = np.array(list(self.left_out.values()))
        count = len(each)
        jackknife = np.sqrt((count - 1) / count * ((each - each.mean(axis=0)) ** 2).sum(axis=0))
        terms = list(self.model.terms.values())
        spread = NINETY * np.maximum(
            jackknife, deviations(self.rows, self.measured_us, np.ones(len(self.rows)), terms, ERROR)
        )
        low = np.array([term.low for term in self.model.terms.values()])
        high = np.array([term.high for term in self.model.terms.values()])
        return np.clip(self.weights - spread, low, high), np.clip(self.weights + spread, low, high)

    def _fitted(self, kept: np.ndarray) -> Floats:
        terms = list(self.model.terms.values())
        weights = np.array([term.prior for term in terms])
        if not kept.any():
            return weights
        rows, growths, measured = self.rows[kept], self.growths[kept], self.measured_us[kept]
        importance = np.ones(len(rows))
        for _ in range(ROUNDS):
            weights = bounded_weights(rows, measured, importance, terms, ERROR)
            grown = _grown(growths, weights)
            misses = grown * np.abs(rows @ weights / measured - 1)
            importance = grown * np.sqrt(LEAST_MISS / np.maximum(misses, LEAST_MISS))
        return weights


def _grown(growths: Floats, weights: Floats) -> Floats:
    """The error in a simulation over the error of a step at the measured load."""
    found: Floats = 1 / np.maximum(1 - growths @ weights, LEAST_DAMPING)
    return found


# A fit as coefficients: its weights with their intervals, the client's time, and the error on experiments that were left out of it.

LEAST_EXPERIMENTS = 3
"""Fewer leave nothing to judge a fit by."""
LEAST_SHARE = 0.01
"""Share of a measured time from which on it bears on a term. Assumed."""


def draft_of(model: StepModel, *, source: str, experiments: Sequence[str], asynchronous: bool) -> Coefficients:
    """The priors of a model as coefficients that rest on these experiments.

    UserError where there are too few experiments, and for a model whose weights are given.
    """
    if not model.is_fitted:
        raise UserError(f"--model: {model.name} has weights of its own; fit kernels or formula")
    if len(experiments) < LEAST_EXPERIMENTS:
        raise UserError(
            f"{source}: {counted(len(experiments), 'experiment')} below saturation with a measured TPOT and TTFT; give at least "
            f"{LEAST_EXPERIMENTS}, so that each can be left out once"
        )
    prior = {name: Weight(value=term.prior, low=term.low, high=term.high) for name, term in model.terms.items()}
    return Coefficients(
        model=model.name,
        weights=prior,
        client=Client(),
        asynchronous=asynchronous,
        half_width=0.0,
        source=source,
        experiments=tuple(experiments),
    )


def unmeasured_terms(terms: Mapping[str, StepTerm], rows: Floats, times_us: Floats) -> tuple[str, ...]:
    """The fitted terms that make up less than LEAST_SHARE of each measured time. `rows` are features in the order of the terms."""
    priors = np.array([term.prior for term in terms.values()])
    most = (rows * priors / times_us[:, None]).max(axis=0)
    return tuple(
        name
        for (name, term), share in zip(terms.items(), most, strict=True)
        if term.low < term.high and share < LEAST_SHARE
    )


def with_grounds(fitted: Coefficients, servers: Iterable[Server]) -> Coefficients:
    """The coefficients with the engines and architectures of the servers that they were fitted to, and the server where it is one."""
    found = list(servers)
    titles = {one.title for one in found}
    return replace(
        fitted,
        server=titles.pop() if len(titles) == 1 else "",
        engines=tuple(sorted({one.engine_name for one in found})),
        architectures=tuple(sorted({one.cluster.gpu.architecture for one in found})),
    )


def with_fit(draft: Coefficients, fit: CoefficientFit, waits: Sequence[tuple[float, float]]) -> Coefficients:
    """The draft with the weights of a fit; `waits` are simulated and measured mean µs to the first token."""
    low, high = fit.intervals()
    weights = {
        name: Weight(value=round(float(value), 4), low=round(float(least), 4), high=round(float(most), 4))
        for name, value, least, most in zip(fit.model.terms, fit.weights, low, high, strict=True)
    }
    return replace(
        draft,
        weights=weights,
        client=Client(first_token_us=round(first_token_us(waits), 1)),
        half_width=round(fit.half_width(), 4),
        untold=unmeasured_terms(fit.model.terms, fit.rows, fit.measured_us),
    )


def first_token_us(waits: Sequence[tuple[float, float]]) -> float:
    """The client's time that brings simulated waits closest to measured ones, by the squares of relative misses; 0 at least."""
    if not waits:
        return 0.0
    needed = fmean((measured - simulated) / measured**2 for simulated, measured in waits)
    return max(0.0, needed / fmean(1 / measured**2 for _, measured in waits))
