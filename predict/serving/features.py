"""Features of a step: times, or counts, that a few fitted weights turn into its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np

from predict.serving.batch import BatchSums, Floats
from predict.serving.server import Server
from predict.serving.step_table import StepTable

Features = Callable[[BatchSums], Floats]
"""The features of each batch on one server, shape (batches, features)."""
CONTEXT_STEP, EVEN_COLUMNS = 512, 17
"""Columns of the table of attention, beyond which their distance doubles."""
FAR = 1e6
"""Pairs, or keys, that give the slope of what is linear in them."""


def table_of(server: Server, features: Features, weights: Sequence[float], *, whole_prompt: bool) -> StepTable:
    """The table whose times are the features times `weights`."""

    def step_us(**given: Floats | float) -> Floats:
        whole: Floats = features(sums(**given)) @ np.asarray(weights)
        return whole

    engine = server.engine
    decodes, tokens = np.arange(engine.max_num_seqs + 1.0), np.arange(1.0, engine.max_num_batched_tokens + 1.0)
    chunk = step_us(prefills=1.0, prefill_tokens=2.0)[0]
    request_us = step_us(prefills=2.0, prefill_tokens=2.0)[0] - chunk
    prefill_token_us = (
        step_us(decodes=1.0, prefills=1.0, prefill_tokens=2.0)[0]
        - step_us(decodes=2.0, prefills=1.0, prefill_tokens=1.0)[0]
        + request_us
    )
    mixed = step_us(prefills=1.0, prefill_tokens=tokens) - request_us - prefill_token_us * tokens
    # decodes differ from as many tokens of a chunk by more than the keys that they read where they have states
    own = step_us(decodes=decodes, prefills=1.0, prefill_tokens=1.0) - step_us(prefills=1.0, prefill_tokens=decodes + 1)
    own += (prefill_token_us - request_us) * decodes
    alone = step_us(decodes=decodes)
    keys = contexts_of(server)
    grid = step_us(decodes=np.repeat(decodes, len(keys)), decode_context=np.outer(decodes, keys).ravel())
    pairs = "whole_prompt_pairs" if whole_prompt else "prefill_pairs"

    def slope_us(of: str) -> float:
        return float(step_us(prefills=1.0, prefill_tokens=2.0, **{of: FAR})[0] - chunk) / FAR

    return StepTable(
        decode_us=alone - own - request_us * decodes,
        mixed_us=np.concatenate(([0.0], mixed)),
        attention_us=grid.reshape(len(decodes), len(keys)) - (alone - own)[:, None],
        contexts=keys,
        prefill_token_us=prefill_token_us,
        pair_us=slope_us(pairs),
        whole_prompt=whole_prompt,
        context_us=slope_us("prefill_context"),
        window=server.window,
        window_pair_us=slope_us("window_pairs"),
        window_context_us=slope_us("window_context"),
        request_us=request_us,
    )


def contexts_of(server: Server) -> Floats:
    """The contexts at which the table has attention, in tokens: up to the model's positions, with the window of its layers one of them,
    for there the keys that are read cease to grow."""
    contexts = [CONTEXT_STEP * place for place in range(EVEN_COLUMNS)]
    while contexts[-1] < max(server.model.max_positions, 2 * server.window):
        contexts.append(2 * contexts[-1])
    return np.array(sorted({*contexts, server.window}), dtype=np.float64)


def sums(**given: Floats | float) -> BatchSums:
    """The sums given, each a number or one per batch, and zeros for the others."""
    size = max(np.size(value) for value in given.values())
    columns = {each.name: np.zeros(size) for each in fields(BatchSums)}
    stated = {name: np.broadcast_to(np.asarray(value, dtype=np.float64), size) for name, value in given.items()}
    return BatchSums(**{**columns, **stated})
