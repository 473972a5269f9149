"""Steady loads whose time per output token was measured, as the mean features of their steps.

A load of `rate` requests per second keeps rate · (n − 1) · TPOT of them decoding (Little's law); the numbers in single steps scatter
about it as Poisson's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from predict.serving.batch import Floats, pairs_within
from predict.serving.features import Features, sums
from predict.serving.scheduler.traffic import Load
from predict.serving.server import EngineSettings
from sampling.units import SECOND_US

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
DEVIATIONS = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
"""Standard deviations of a normal at QUANTILES."""

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
    window: int
    """Keys that a query of sliding layers sees; 0 where none slides."""


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
    joining = load.rate * observed.tpot_us / SECOND_US
    mixed = -math.expm1(-joining)
    chunks = joining / mixed
    tokens, window = uncached_tokens(engine, load), observed.window
    found_tokens = load.prompt - tokens
    pure = features(sums(decodes=decodes, decode_context=context))
    with_chunks = features(
        sums(
            decodes=decodes,
            decode_context=context,
            prefills=chunks,
            prefill_tokens=chunks * tokens,
            prefill_context=chunks * found_tokens,
            prefill_pairs=chunks * pairs_within(found_tokens, tokens, 0),
            window_context=chunks * min(found_tokens, window or found_tokens),
            window_pairs=chunks * pairs_within(found_tokens, tokens, window),
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
