"""A fit as coefficients: its weights with their intervals, the client's time, and the error on experiments that were left out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from predict.serving.batch import Floats
from predict.serving.coefficients import Client, Coefficients, Weight
from predict.serving.fitting.fit import CoefficientFit
from predict.serving.server import Server
from predict.serving.step_model import StepModel, StepTerm
from sampling.errors import SamplesError, UserError
from sampling.files.faults import counted

LEAST_EXPERIMENTS = 3
"""Fewer leave nothing to judge a fit by."""
LEAST_TOLD = 0.01
"""Share of a measured time from which on it tells of a term. Assumed."""


def draft_of(model: StepModel, *, source: str, experiments: Sequence[str], asynchronous: bool) -> Coefficients:
    """The priors of a model as coefficients that rest on these experiments.

    SamplesError where there are too few experiments; UserError for a model whose weights are given.
    """
    if not model.is_fitted:
        raise UserError(f"--model: {model.name} has weights of its own; fit kernels or formula")
    if len(experiments) < LEAST_EXPERIMENTS:
        raise SamplesError(
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


def untold_terms(terms: Mapping[str, StepTerm], rows: Floats, times_us: Floats) -> tuple[str, ...]:
    """The fitted terms that make up less than LEAST_TOLD of each measured time. `rows` are features in the order of the terms."""
    priors = np.array([term.prior for term in terms.values()])
    most = (rows * priors / times_us[:, None]).max(axis=0)
    return tuple(
        name
        for (name, term), share in zip(terms.items(), most, strict=True)
        if term.low < term.high and share < LEAST_TOLD
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
        untold=untold_terms(fit.model.terms, fit.rows, fit.measured_us),
    )


def first_token_us(waits: Sequence[tuple[float, float]]) -> float:
    """The client's time that brings simulated waits closest to measured ones, by the squares of relative misses; 0 at least."""
    if not waits:
        return 0.0
    needed = fmean((measured - simulated) / measured**2 for simulated, measured in waits)
    return max(0.0, needed / fmean(1 / measured**2 for _, measured in waits))
