"""Times of a step's kernels by group, for many batches at once: what the factors of the kernel model multiply.

Kernels are priced at a few sizes by the price list that training uses, and interpolated between these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from predict.prices.kernels.memory_bound import START_US
from predict.prices.open import open_prices
from predict.prices.price_list import Priced, Prices
from predict.run.execution import Execution
from predict.serving.batch import BatchSums, Floats, computed_tokens, pairs_within
from predict.serving.kernels.calls import decode_attention, head_kernels, prefill_attention, token_kernels
from predict.serving.kernels.grouped import Group
from predict.serving.mixers.served import Kept
from predict.serving.server import EngineSettings, Server
from sampling.arithmetic.operator import Operator
from sampling.call import Counted

GROUPS: tuple[Group, ...] = get_args(Group)
NAMES = (*GROUPS, "layer", "step", "request")
"""The columns: µs of each group of kernels, then the number of layers, 1, and the number of requests."""
KEYS = (1, 128, 512, 2048, 8192, 32768)
"""Keys per sequence at which decode attention is priced, beside the windows of the layers."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PROMPT = 2048
"""Tokens of the prompt whose attention gives the time of a query-key pair, and of a token where a state is kept."""
EXECUTION = Execution(clocks="burst")
"""Conditions of an engine's kernels: decoding draws little power, so that clocks stay high."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KernelFeatures:
    """The times of one server's kernels; called with sums, it gives the columns NAMES, shape (batches, 8)."""

    server: Server
    sizes: Floats
    """Numbers of tokens, or requests, at which kernels were priced."""
    by_tokens: Floats
    """Their times by group, shape (sizes, groups)."""
    by_requests: Floats
    """Those of the head, shape (sizes, groups)."""
    batches: Floats
    keys: Floats
    """Keys per sequence at which decode attention was priced."""
    attention_us: Floats
    """Decode attention, shape (batches, keys)."""
    pair_us: float
    """Per query-key pair of a chunk, in layers that keep all keys."""
    read_us: float
    """Per key that a chunk reads from the cache there."""
    window_pair_us: float
    window_read_us: float
    """The same in sliding layers, of the pairs and keys within the window."""
    prefill_token_us: float
    """Per token of a chunk, in layers that keep a state."""

    def __call__(self, sums: BatchSums) -> Floats:
        engine, pure = self.server.engine, sums.prefill_tokens == 0
        tokens = computed_tokens(sums, engine.replayed_sizes)
        requests = np.where(pure, tokens, sums.requests)
        times = _between(self.sizes, self.by_tokens, tokens) + _between(self.sizes, self.by_requests, requests)
        attention = GROUPS.index("attention")
        times[:, attention] += self._decode_us(sums)
        times[:, attention] += self.pair_us * sums.prefill_pairs + self.read_us * sums.prefill_context
        times[:, attention] += self.window_pair_us * sums.window_pairs + self.window_read_us * sums.window_context
        times[:, attention] += self.prefill_token_us * sums.prefill_tokens
        one = np.ones_like(tokens)
        return np.column_stack((times, self.server.model.layers * one, one, sums.requests))

    def _decode_us(self, sums: BatchSums) -> Floats:
        decodes = np.maximum(sums.decodes, 1.0)
        by_keys = _between(self.batches, self.attention_us, decodes)
        keys = self.keys
        mean = np.clip(sums.decode_context / decodes, keys[0], None)
        place = np.clip(np.searchsorted(keys, mean, side="right") - 1, 0, len(keys) - 2)
        rows = np.arange(len(decodes))
        low, high = by_keys[rows, place], by_keys[rows, place + 1]
        time: Floats = low + (high - low) * (mean - keys[place]) / (keys[place + 1] - keys[place])
        return time


def kernel_features(server: Server) -> KernelFeatures:
    """Price a server's kernels by the samples of its cluster's profile, or analytically where there are none."""
    prices = prices_of(server)
    engine = server.engine
    sizes = priced_tokens(engine)
    by_tokens = [_by_group(prices, token_kernels(server, size)) for size in sizes]
    by_requests = [_by_group(prices, head_kernels(server, min(size, engine.max_num_seqs))) for size in sizes]
    batches, priced = priced_batches(engine), priced_keys(server)
    attention = [[_sum(prices, decode_attention(server, batch, keys)) for keys in priced] for batch in batches]
    prompt_us = {kept: _sum(prices, prefill_attention(server, PROMPT, kept=kept)) for kept in get_args(Kept)}
    return KernelFeatures(
        server=server,
        sizes=np.array(sizes, dtype=np.float64),
        by_tokens=np.array(by_tokens),
        by_requests=np.array(by_requests),
        batches=np.array(batches, dtype=np.float64),
        keys=np.array(priced, dtype=np.float64),
        attention_us=np.array(attention),
        pair_us=prompt_us["all"] / pairs_within(0, PROMPT, 0),
        read_us=_read_us(server, prices, "all", priced[-2:]),
        window_pair_us=prompt_us["window"] / pairs_within(0, PROMPT, server.window),
        window_read_us=_read_us(server, prices, "window", [key for key in priced if key <= server.window][-2:]),
        prefill_token_us=prompt_us["state"] / PROMPT,
    )


def _read_us(server: Server, prices: Prices, kept: Kept, keys: Sequence[int]) -> float:
    """µs per key that one sequence reads from the cache, between two numbers of them; 0 where there are not two."""
    if len(keys) < 2:
        return 0.0
    few, many = (_sum(prices, decode_attention(server, 1, each, kept=kept)) for each in keys)
    return max(0.0, many - few) / (keys[1] - keys[0])


def prices_of(server: Server) -> Prices:
    """The price list of a server's cluster."""
    return open_prices(server.cluster, EXECUTION)


def priced_tokens(engine: EngineSettings) -> list[int]:
    """Numbers of a step's tokens at which kernels are priced."""
    return priced_sizes(engine.max_num_batched_tokens, engine.replayed_sizes)


def priced_batches(engine: EngineSettings) -> list[int]:
    """Numbers of decodes at which their attention is priced."""
    return [batch for batch in BATCHES if batch < engine.max_num_seqs] + [engine.max_num_seqs]


def priced_keys(server: Server) -> list[int]:
    """Keys per sequence at which decode attention is priced: a window's are where a longer context ceases to cost more."""
    return sorted({*KEYS, *filter(None, [server.window])})


def priced_sizes(most: int, graph_sizes: Sequence[int]) -> list[int]:
    """Powers of two and their halves between up to `most`, and the sizes of graphs."""
    powers = [2**power for power in range(most.bit_length())]
    between = [3 * power // 2 for power in powers if power > 1]
    return sorted({size for size in (*powers, *between, *graph_sizes, most) if size <= most})


def _by_group(prices: Prices, kernels: dict[Group, list[Counted]]) -> list[float]:
    return [_sum(prices, kernels.get(group, ())) for group in GROUPS]


def _sum(prices: Prices, counted: Iterable[Counted]) -> float:
    return sum(map(_within_graph_us, prices.priced(counted)))


def _within_graph_us(priced: Priced) -> float:
    """The time of a kernel; what an elementwise one needs to start is counted per layer."""
    call = priced.call
    if isinstance(call, Operator) and call.KIND == "elementwise" and priced.time.source == "analytic":
        return max(0.0, priced.total_us - priced.count * START_US * call.kernels)
    return priced.total_us


def _between(sizes: Floats, rows: Floats, wanted: Floats) -> Floats:
    """Rows interpolated linearly at other sizes; the last one goes on beyond."""
    place = np.clip(np.searchsorted(sizes, wanted, side="right") - 1, 0, max(0, len(sizes) - 2))
    after = np.minimum(place + 1, len(sizes) - 1)
    gap = np.maximum(sizes[after] - sizes[place], 1e-9)
    share = np.clip((wanted - sizes[place]) / gap, 0.0, 1.0)[:, None]
    found: Floats = rows[place] + (rows[after] - rows[place]) * share
    return found
