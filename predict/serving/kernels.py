"""Times of a step's kernels by group, for many batches at once: what the factors of the kernel model multiply.

Kernels are priced at a few sizes by the price list that training uses, and interpolated between these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np

from predict.layers.mixture import DEEPEP_MULTIPROCESSORS, LOW_LATENCY_TOKENS, SHARE_BESIDE_MICROBATCH
from predict.layers.part import feed_forward_of
from predict.layers.served import Group, GroupedCall, Kept
from predict.model.spec import LayerKind
from predict.prices.kernels.memory_bound import START_US
from predict.prices.open import open_prices
from predict.prices.price_list import Priced, Prices
from predict.run.execution import Execution
from predict.serving.batch import BatchSums, Seen, StepBatch, computed_tokens, keys_within, pairs_within
from predict.serving.server import EngineSettings, ServedMixer, Server, served_mixers
from predict.serving.step_table import StepTable
from regressors.features.arrays import Floats
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Counted, Request
from sampling.collectives.kinds import AllGather, AllReduce, Collective, CustomAllReduce, SendRecv, TokenExchange
from sampling.hardware.cluster import DTYPE_BYTES, Gpu
from sampling.operators.attention import DecodeAttention
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import FP8_BLOCK, Gemm
from sampling.operators.indexer import Indexer
from sampling.operators.memory_bound import RMSNorm
from sampling.operators.vocabulary import RankedLogits, TokenDraw

# The kernels of one step on one GPU, as the calls that training's price lists know, by the factor that corrects them.


def token_kernels(server: Server, tokens: int) -> dict[Group, list[Counted]]:
    """The kernels whose work depends on the number of tokens alone, all layers together; the head is apart."""
    found: dict[Group, list[Counted]] = {"gemm": [], "moe": [], "all_reduce": [], "elementwise": []}
    parts = [(each.layers, each.mixer.token_calls(each.share, tokens)) for each in served_mixers(server)]
    parts += [(layers, _layer(server, kind, tokens)) for kind, layers in server.model.kind_counts().items()]
    for layers, calls in parts:
        for group, call, count in calls:
            found[group].append(Counted(call=call, phase="forward", count=layers * count))
    if server.joined:
        join = Gemm(dtype=server.activations, m=tokens, n=server.model.hidden, k=server.joined * server.model.hidden)
        found["gemm"].append(Counted(call=join, phase="forward"))
    if server.tp > 1:
        # the rows of the embedding that are on other GPUs
        found["all_reduce"].append(Counted(call=_all_reduce(server, tokens), phase="forward"))
    if server.placement.pp > 1:
        found["all_reduce"].append(Counted(call=_send(server, tokens), phase="forward", count=server.placement.pp - 1))
    return found


def token_exchange(server: Server, tokens: int) -> list[Counted]:
    """Those of `token_kernels` in which tokens travel to experts on other GPUs and back."""
    return [
        Counted(call=call, phase="forward", count=layers)
        for kind, layers in server.model.kind_counts().items()
        if (feed_forward := feed_forward_of(server.model, kind))
        for call in feed_forward.served_exchange(server.share(), tokens)
    ]


def head_kernels(server: Server, requests: int) -> dict[Group, list[Counted]]:
    """The head on each request's last token, the gathering of its logits, and the choice of a token by them."""
    model, tp = server.model, server.tp
    head = Gemm(dtype=server.activations, m=requests, n=max(1, model.vocab // tp), k=model.hidden)
    found: dict[Group, list[Counted]] = {"gemm": [Counted(call=head, phase="forward")], "all_reduce": []}
    if tp > 1:
        gather = AllGather(
            size_bytes=DTYPE_BYTES[server.activations] * requests * model.vocab,
            ranks=tp,
            ranks_per_node=_per_node(server),
        )
        found["all_reduce"].append(Counted(call=gather, phase="forward"))
    found["elementwise"] = [Counted(call=call, phase="forward") for call in token_choice(server, requests)]
    return found


def token_choice(server: Server, requests: int) -> list[Operator]:
    """The passes over the logits that choose each request's next token, on every GPU alike; the largest logit takes none of its own."""
    if server.engine.sampling == "greedy":
        return []
    vocab, dtype = server.model.vocab, "fp32"
    draw = TokenDraw(dtype=dtype, requests=requests, vocab=vocab)
    if server.engine.sampling == "random":
        return [draw]
    return [RankedLogits(dtype=dtype, requests=requests, vocab=vocab), draw]


def decode_attention(server: Server, decodes: int, keys: int, *, windows: bool | None = None) -> list[Counted]:
    """The calls in which each of `decodes` tokens attends to `keys` keys: of all layers, or those alone that do, or do not, limit these to
    a window."""
    return [
        Counted(call=call, phase="forward", count=each.layers)
        for each in served_mixers(server)
        for call in each.mixer.decode_calls(each.share, decodes, keys)
        if windows in (None, isinstance(call, DecodeAttention) and call.window > 0)
    ]


def prefill_attention(server: Server, tokens: int, *, kept: Kept | None = None) -> list[Counted]:
    """The calls of a prompt that is computed in one chunk, or those alone whose pairs are of the `kept` part of a sequence."""
    return [
        Counted(call=call, phase="forward", count=each.layers)
        for each in served_mixers(server)
        for call in each.mixer.prefill_calls(each.share, tokens)
        if kept in (None, _pairs_of(each, call))
    ]


def _pairs_of(each: ServedMixer, call: Call) -> Kept:
    """The keys that each query of a prompt's call meets. An indexer scores all of them, and attention sees no more than it picks."""
    keeps = each.mixer.cache(each.share).keeps
    sees_few = keeps == "all" and each.mixer.keys_seen(each.share) and not isinstance(call, Indexer)
    return "window" if sees_few else keeps


def step_kernels(server: Server, batch: StepBatch) -> dict[Group, list[Counted]]:
    """The kernels of one step; its decodes read their mean number of keys, and its chunks no keys of earlier ones. A model that writes
    drafts has a pass for each of them."""
    chunks = [chunk.tokens for chunk in batch.chunks]
    drafted = server.speculation.drafts * len(batch.decodes)
    found = token_kernels(server, sum(chunks) + len(batch.decodes) + drafted)
    for group, calls in head_kernels(server, len(chunks) + len(batch.decodes) + drafted).items():
        found[group] += calls
    found["attention"] = [call for tokens in chunks for call in prefill_attention(server, tokens)]
    for windows, seen in ((False, Seen()), (True, server.seen)) if batch.decodes else ():
        keys = sum(keys_within(context, seen) for context in batch.decodes) // len(batch.decodes)
        found["attention"] += decode_attention(server, len(batch.decodes), max(1, keys), windows=windows)
    if drafting := server.drafting:
        for group, calls in step_kernels(drafting, batch).items():
            found[group] += [replace(one, count=server.speculation.drafts * one.count) for one in calls]
    return found


def _layer(server: Server, kind: LayerKind, tokens: int) -> Iterator[GroupedCall]:
    """The norms and the feed-forward of one layer, and what its GPUs exchange."""
    model = server.model
    yield "elementwise", RMSNorm(dtype=server.activations, tokens=tokens, hidden=model.hidden), model.norms_of(kind)
    if feed_forward := feed_forward_of(model, kind):
        yield from feed_forward.token_calls(server.share(), tokens)
    if server.tp > 1:
        yield "all_reduce", _all_reduce(server, tokens), kind.parts


def _all_reduce(server: Server, tokens: int) -> Collective:
    """The engine's own kernel among the GPUs of a node; the communication library's between nodes, and on CPUs."""
    own = server.tp == _per_node(server) and server.cluster.gpu.kind != "cpu"
    kind = CustomAllReduce if own else AllReduce
    return kind(
        size_bytes=DTYPE_BYTES[server.activations] * tokens * server.model.hidden,
        ranks=server.tp,
        ranks_per_node=_per_node(server),
    )


def _send(server: Server, tokens: int) -> SendRecv:
    """The activations and the residual that a stage sends to the next (vLLM, `IntermediateTensors`)."""
    size_bytes = 2 * DTYPE_BYTES[server.activations] * tokens * server.model.hidden
    in_node = server.placement.tp * server.placement.pp <= server.cluster.gpus_per_node
    return SendRecv(size_bytes=size_bytes, ranks=2, ranks_per_node=2 if in_node else 1)


def _per_node(server: Server) -> int:
    """Tensor-parallel ranks in one node."""
    return min(server.tp, server.cluster.gpus_per_node)


GROUPS: tuple[Group, ...] = get_args(Group)
KEYS = (1, 128, 512, 2048, 8192, 32768)
"""Keys per sequence at which decode attention is priced, in addition to the windows of the layers."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
PROMPT = 2048
"""Tokens of the prompt whose attention gives the time of a token: all of it where a state is kept, else what its pairs leave of it."""
LONG_PROMPT = 32768
"""Tokens of the prompt whose attention gives the time of a query-key pair. Its blocks fill every multiprocessor, as those of a chunk after
a long context do; the longest block of a prompt of 2,048 tokens is most of its time on a device with few of the heads (Dao,
FlashAttention-2, arXiv 2307.08691, section 3.2), so that a pair takes up to five times as long there."""
EXECUTION = Execution(clocks="burst")
"""Conditions of an engine's kernels: decoding draws little power, so that clocks stay high."""
OF_PROMPTS = Execution(clocks="sustained")
"""Those of products that compute binds, as prompts': they draw all the power that the device may, as products of training do."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KernelFeatures:
    """The times of one server's kernels; called with sums, it gives the columns of a step model, shape (batches, 8): µs of
    each of GROUPS, then the number of layers, 1, and the number of requests."""

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
    """Decode attention where queries see all keys, shape (batches, keys)."""
    scores_us: Floats
    """Its products alone at the share of the peak that attention reaches, of the same shape: with drafts to verify they may take longer
    than the keys, which are read once for all tokens of a decode."""
    window_attention_us: Floats
    window_scores_us: Floats
    """The same in layers whose queries see a window."""
    pair_us: float
    """Time per query-key pair of a chunk, where each query meets all keys before it."""
    read_us: float
    """Time per key that a chunk reads from the cache there."""
    window_pair_us: float
    window_read_us: float
    """The same in layers whose queries see a window, or what an indexer picks: of the pairs and keys within that many."""
    prefill_token_us: float
    """Time per token of a chunk: in layers that keep a state, and beyond that of its pairs in the others."""
    exchange_us: Floats
    """The part of `by_tokens` in which tokens travel to experts and back, shape (sizes, 1)."""

    def __call__(self, sums: BatchSums) -> Floats:
        engine, pure = self.server.engine, sums.prefill_tokens == 0
        tokens = computed_tokens(sums, engine.replayed_sizes)
        requests = np.where(pure, tokens, sums.scored)
        halves = 2 if engine.two_batch_overlap else 1
        times = halves * _between(self.sizes, self.by_tokens, tokens / halves)
        times += _between(self.sizes, self.by_requests, requests)
        attention = GROUPS.index("attention")
        times[:, attention] += self._decode_us(sums, sums.decode_context, self.attention_us, self.scores_us)
        times[:, attention] += self._decode_us(sums, sums.window_keys, self.window_attention_us, self.window_scores_us)
        times[:, attention] += self.pair_us * sums.prefill_pairs + self.read_us * sums.prefill_context
        times[:, attention] += self.window_pair_us * sums.window_pairs + self.window_read_us * sums.window_context
        times[:, attention] += self.prefill_token_us * sums.prefill_tokens
        if engine.two_batch_overlap:
            times[:, GROUPS.index("all_reduce")] -= self._hidden_us(tokens, times)
        one = np.ones_like(tokens)
        return np.column_stack((times, halves * self.server.model.layers * one, one, sums.requests))

    def _hidden_us(self, tokens: Floats, times: Floats) -> Floats:
        """Exchanges of half a step's tokens that the computing of the other half hides, less what it loses to the multiprocessors that
        DeepEP's normal kernels hold meanwhile."""
        exchanged = 2 * _between(self.sizes, self.exchange_us, tokens / 2)[:, 0]
        others = times.sum(axis=1) - times[:, GROUPS.index("all_reduce")]
        held = DEEPEP_MULTIPROCESSORS / (self.server.cluster.gpu.multiprocessors or math.inf)
        normal = self.server.engine.dispatch == "deepep"
        lost = np.where(normal & (tokens / 2 > LOW_LATENCY_TOKENS * self.server.tp), held, 0.0)
        hidden: Floats = np.minimum(exchanged, SHARE_BESIDE_MICROBATCH * others) * (1 - lost)
        return hidden

    def _decode_us(self, sums: BatchSums, context: Floats, attention_us: Floats, scores_us: Floats) -> Floats:
        """Attention of the decodes to `context` keys, all together."""
        decodes = np.maximum(sums.decodes, 1.0)
        if self.server.cluster.gpu.kind == "cpu":
            # each token gathers the keys by itself
            by_keys = _between(self.batches, attention_us, decodes * sums.queries)
        else:
            by_keys = _between(self.batches, attention_us, decodes)
            if np.any(sums.drafted):
                scores = _between(self.batches, scores_us, decodes) * sums.queries[:, None]
                by_keys = np.maximum(by_keys, scores)
        keys = self.keys
        mean = np.clip(context / decodes, keys[0], None)
        place = np.clip(np.searchsorted(keys, mean, side="right") - 1, 0, len(keys) - 2)
        rows = np.arange(len(decodes))
        low, high = by_keys[rows, place], by_keys[rows, place + 1]
        time: Floats = low + (high - low) * (mean - keys[place]) / (keys[place + 1] - keys[place])
        return time


def kernel_features(server: Server) -> KernelFeatures:
    """Price a server's kernels by the samples of its cluster's profile, or analytically where there are none."""
    prices = ServerPrices(server.cluster.gpu, prices_of(server), open_prices(server.cluster, OF_PROMPTS))
    engine = server.engine
    sizes = priced_tokens(engine)
    by_tokens = [_by_group(prices, token_kernels(server, size)) for size in sizes]
    by_requests = [_by_group(prices, head_kernels(server, min(size, most_scored(server)))) for size in sizes]
    batches, priced = priced_batches(server), priced_keys(server)

    def at_each(decode_us: Callable[[list[Counted]], float], windows: bool) -> Floats:
        calls = ([decode_attention(server, batch, keys, windows=windows) for keys in priced] for batch in batches)
        return np.array([list(map(decode_us, row)) for row in calls])

    attention_us, window_attention_us = (at_each(partial(_sum, prices), windows) for windows in (False, True))
    scores_us, window_scores_us = (at_each(partial(_scores_us, server), windows) for windows in (False, True))
    state_us = _sum(prices, prefill_attention(server, PROMPT, kept="state")) / PROMPT
    pair_us, token_us = _prompt_us(server, prices, "all", Seen())
    window_pair_us, window_token_us = _prompt_us(server, prices, "window", server.seen)
    return KernelFeatures(
        server=server,
        sizes=np.array(sizes, dtype=np.float64),
        by_tokens=np.array(by_tokens),
        by_requests=np.array(by_requests),
        batches=np.array(batches, dtype=np.float64),
        keys=np.array(priced, dtype=np.float64),
        attention_us=attention_us,
        scores_us=scores_us,
        window_attention_us=window_attention_us,
        window_scores_us=window_scores_us,
        pair_us=pair_us,
        read_us=_read_us(server, prices, False, priced[-2:]),
        window_pair_us=window_pair_us,
        window_read_us=_read_us(server, prices, True, [key for key in priced if key <= server.seen.most][-2:]),
        prefill_token_us=state_us + token_us + window_token_us,
        exchange_us=np.array([[_sum(prices, token_exchange(server, size))] for size in sizes]),
    )


def _prompt_us(server: Server, prices: ServerPrices, kept: Kept, seen: Seen) -> tuple[float, float]:
    """µs per query-key pair of a long prompt's attention, and per token of a short one's beyond those of its pairs. On a CPU each block has
    a core to itself, so that a pair takes as long in either."""
    short_us, short_pairs = _sum(prices, prefill_attention(server, PROMPT, kept=kept)), pairs_within(0, PROMPT, seen)
    of_pair = short_us / short_pairs
    if server.cluster.gpu.kind != "cpu":
        long_us = _sum(prices, prefill_attention(server, LONG_PROMPT, kept=kept))
        of_pair = min(of_pair, long_us / pairs_within(0, LONG_PROMPT, seen))
    return of_pair, (short_us - of_pair * short_pairs) / PROMPT


def _scores_us(server: Server, calls: Iterable[Counted]) -> float:
    """µs of the products of decode attention at the share of the peak that attention reaches; 0 where no drafts are verified."""
    gpu, found = server.cluster.gpu, 0.0
    if not server.speculation.drafts:
        return 0.0
    for one in calls:
        if isinstance(one.call, Operator):
            peak = gpu.efficiency["attention"] * gpu.peak_flops_per_us(one.call.compute_dtype)
            found += one.count * one.call.executed_flops("forward") / peak
    return found


def _read_us(server: Server, prices: ServerPrices, windows: bool, keys: Sequence[int]) -> float:
    """µs per key that one sequence reads from the cache, between two numbers of them; 0 where there are not two."""
    if len(keys) < 2:
        return 0.0
    few, many = (_sum(prices, decode_attention(server, 1, each, windows=windows)) for each in keys)
    return max(0.0, many - few) / (keys[1] - keys[0])


def prices_of(server: Server) -> Prices:
    """The price list of a server's cluster, as decodes have it."""
    return open_prices(server.cluster, EXECUTION)


@dataclass(frozen=True, slots=True)
class ServerPrices:
    """The price lists of a server's cluster: of calls that memory binds, and of those that compute binds."""

    gpu: Gpu
    of_memory: Prices
    of_compute: Prices

    def priced(self, counted: Iterable[Counted]) -> Iterator[Priced]:
        for one in counted:
            yield from (self.of_compute if self._computes(one) else self.of_memory).priced([one])

    def _computes(self, one: Counted) -> bool:
        """Whether a call's FLOPs at the peak take longer than its bytes at the stated bandwidth."""
        call = one.call
        if not isinstance(call, Operator) or not call.POWER_LIMITED:
            return False
        compute_us = call.executed_flops(one.phase) / self.gpu.peak_flops_per_us(call.compute_dtype)
        return compute_us > call.least_bytes(one.phase) / self.gpu.bytes_per_us()


def priced_tokens(engine: EngineSettings) -> list[int]:
    """Numbers of a step's tokens at which kernels are priced."""
    return priced_sizes(engine.max_num_batched_tokens, engine.replayed_sizes)


def priced_batches(server: Server) -> list[int]:
    """Numbers of decodes at which their attention is priced; on a CPU each draft is one more of them."""
    most = most_scored(server) if server.cluster.gpu.kind == "cpu" else server.engine.max_num_seqs
    return [batch for batch in BATCHES if batch < most] + [most]


def most_scored(server: Server) -> int:
    """Most tokens of a step whose successors the head computes."""
    return server.engine.max_num_seqs * (1 + server.speculation.drafts)


def priced_keys(server: Server) -> list[int]:
    """Keys per sequence at which decode attention is priced: a window's are where a longer context ceases to cost more."""
    return sorted({*KEYS, *filter(None, [server.seen.most])})


def priced_sizes(most: int, graph_sizes: Sequence[int]) -> list[int]:
    """Powers of two and their halves between up to `most`, and the sizes of graphs."""
    powers = [2**power for power in range(most.bit_length())]
    between = [3 * power // 2 for power in powers if power > 1]
    return sorted({size for size in (*powers, *between, *graph_sizes, most) if size <= most})


def _by_group(prices: ServerPrices, kernels: dict[Group, list[Counted]]) -> list[float]:
    return [_sum(prices, kernels.get(group, ())) for group in GROUPS]


def _sum(prices: ServerPrices, counted: Iterable[Counted]) -> float:
    return sum(map(_within_graph_us, prices.priced(counted)))


def _within_graph_us(priced: Priced) -> float:
    """The time of a kernel; what an elementwise one of a layer needs to start is counted per layer."""
    call = priced.call
    if (
        isinstance(call, Operator)
        and not isinstance(call, (RankedLogits, TokenDraw))
        and call.KIND == "elementwise"
        and priced.time.source == "analytic"
    ):
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


LAYER_US = 790.0
"""µs in which an engine's host runs through one layer, however few its tokens: 22 to 23 ms per token of Qwen2.5-Omni-7B's 28 layers with
enforce_eager on A800, and 13 ms with graphs (vllm-project/vllm-omni, issue 7960)."""
KERNELS_OF_LAYER = 9
"""Kernels of such a layer as `launched_kernels` counts them; others take as much for each of theirs."""
ROUTING_KERNELS = 5
"""Kernels of a layer with experts beside those that are priced: the choice of experts, their tokens counted, sorted and gathered, and
the sum of the results (vLLM, fused_moe.py: topk_softmax, moe_align_block_size and its sort, moe_sum; TensorRT-LLM's Cutlass experts
have as many)."""


def with_launches(table: StepTable, server: Server) -> StepTable:
    """The table with no step shorter than its launches, where the engine is eager, or has no graphs for so many tokens with a prompt. GPU
    and host work side by side."""
    drafting = server.drafting
    if server.engine.enforce_eager:
        written = server.speculation.drafts * launches_us(drafting) if drafting else 0.0
        return table.at_least(launches_us(server) + written)
    if server.cluster.gpu.kind == "cpu":
        return table
    return table.prompts_at_least(launches_us(server), beyond=server.engine.prefill_graph_tokens)


def launches_us(server: Server) -> float:
    """µs in which the host runs through all layers of a step."""
    return LAYER_US / KERNELS_OF_LAYER * launched_kernels(server)


def launched_kernels(server: Server) -> float:
    """Kernels of all layers of a step of prompts. All-reduces are fused into the norms after them; products in fp8 by block have a
    kernel of their own that finds the scales of their rows."""
    found = token_kernels(server, PROMPT)
    products = [*found["gemm"], *found["moe"]]
    scaled = [one for one in products if isinstance(one.call, Gemm | GroupedGemm) and one.call.kernel == FP8_BLOCK]
    counted = (*products, *scaled, *found["elementwise"], *prefill_attention(server, PROMPT))
    routed = ROUTING_KERNELS * sum(kind.sparse for kind in server.model.kinds())
    return routed + sum(one.count for one in counted)


# The calls of a server's steps that are worth timing: those at which its kernels are priced.


def requests_of_server(server: Server) -> list[Request]:
    """Each call once, but for those of DeepEP, which no sampler times. Keys beyond the model's positions are left to what is learnt from
    the others."""
    both = filter(None, (server, server.drafting))
    calls = dict.fromkeys(
        one.call for each in both for one in _kernels(each) if not isinstance(one.call, TokenExchange)
    )
    return [Request(call=call, phases=("forward",)) for call in calls]


def _kernels(server: Server) -> Iterator[Counted]:
    engine, most = server.engine, server.model.max_positions
    for tokens in priced_tokens(engine):
        for found in (token_kernels(server, tokens), head_kernels(server, min(tokens, most_scored(server)))):
            for calls in found.values():
                yield from calls
    for batch in priced_batches(server):
        for keys in priced_keys(server):
            if not most or keys <= most:
                yield from decode_attention(server, batch, keys)
    yield from prefill_attention(server, PROMPT)
    if server.cluster.gpu.kind != "cpu" and (not most or most >= LONG_PROMPT):
        yield from prefill_attention(server, LONG_PROMPT)
