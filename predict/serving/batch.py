"""The batch of one engine step, and the sums over it that its time depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predict.model.spec import chunks_of
from regressors.features.arrays import Floats
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Prompt tokens of one request that a step computes."""

    tokens: int
    """Tokens that are computed."""
    context: int = 0
    """Tokens of the same request whose keys and values are in the cache already."""
    prompt: int = 0
    """Tokens of the whole prompt; 0 for `context + tokens`. Only the published formula reads it."""

    @property
    def whole(self) -> int:
        return self.prompt or self.context + self.tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """Prefill chunks, and one entry per decoding request: the tokens in the cache that its new token attends to."""

    chunks: tuple[Chunk, ...] = ()
    decodes: tuple[int, ...] = ()
    shared_tokens: int = 0
    """Tokens of these contexts that the cache holds once where several requests have them: so many fewer than the contexts add up to."""

    def __post_init__(self) -> None:
        wrong = [
            f"chunks[{place}]: {one}" for place, one in enumerate(self.chunks) if one.tokens < 1 or one.context < 0
        ]
        wrong += [f"decodes[{place}]: {context}" for place, context in enumerate(self.decodes) if context < 0]
        if self.shared_tokens < 0:
            wrong.append(f"shared_tokens: {self.shared_tokens}")
        if not self.chunks and not self.decodes:
            wrong.append("it is empty: a step needs a prefill chunk or a decode")
        if wrong:
            raise UserError(
                "\n".join(f"step batch: {one}; a chunk has 1 token or more, a context 0 or more" for one in wrong)
            )

    @property
    def held_tokens(self) -> list[int]:
        """Tokens of each request whose keys and values the cache holds after the step."""
        return [context + 1 for context in self.decodes] + [chunk.context + chunk.tokens for chunk in self.chunks]

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest request after the step."""
        chunks = max((chunk.context + chunk.tokens for chunk in self.chunks), default=0)
        return max(chunks, max(self.decodes, default=-1) + 1)


class Seen(NamedTuple):
    """The keys that a query sees in those layers of a server in which it does not see all: a window, as numba takes it too."""

    most: int = 0
    """Keys, at most; 0 where every layer sees all."""
    in_chunks: bool = False
    """They are those of the query's own chunk of the sequence, of `most` tokens, rather than the last ones."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BatchSums:
    """Sums over each of many batches, one element per batch."""

    prefills: Floats
    """Prefill chunks."""
    prefill_tokens: Floats
    """Tokens of these chunks."""
    prefill_pairs: Floats
    """Query-key pairs under the causal mask: tokens · (context + tokens / 2), summed over chunks."""
    prefill_context: Floats
    """Keys that the chunks read from the cache."""
    window_pairs: Floats
    """The pairs in layers whose queries see a window."""
    window_context: Floats
    """Keys that the chunks read from the cache there."""
    whole_prompt_pairs: Floats
    """The pairs as the published formula counts them: tokens · (whole prompt + tokens / 2)."""
    decodes: Floats
    """Decoding requests."""
    decode_context: Floats
    """Tokens in the cache of these, all together."""
    window_keys: Floats
    """Those of them that they see in layers whose queries see a window."""
    drafted: Floats | float = 0.0
    """Draft tokens that the decodes verify, all together."""

    @property
    def decode_tokens(self) -> Floats:
        """Tokens that the decodes compute: one each, and their drafts."""
        return self.decodes + self.drafted

    @property
    def tokens(self) -> Floats:
        return self.prefill_tokens + self.decode_tokens

    @property
    def scored(self) -> Floats:
        """Tokens whose successors the head computes: the last one of each request, and each draft."""
        return self.requests + self.drafted

    @property
    def queries(self) -> Floats:
        """Tokens of a decode, on average."""
        return 1.0 + self.drafted / np.maximum(self.decodes, 1.0)

    @property
    def requests(self) -> Floats:
        return self.prefills + self.decodes


def computed_tokens(sums: BatchSums, graph_sizes: Sequence[int]) -> Floats:
    """Tokens that each step computes: a step of decodes alone replays the graph of the next size, and computes as many; beyond the largest
    graph, as many as there are."""
    sizes = np.array([*graph_sizes, np.inf])
    size = sizes[np.searchsorted(sizes, sums.decode_tokens)]
    padded = np.where(np.isinf(size), sums.decode_tokens, size)
    return np.where(sums.prefill_tokens == 0, padded, sums.tokens)


def keys_within(context: int, seen: Seen) -> int:
    """Keys in the cache that a query after so many tokens sees: beyond the end of a chunk none but those after it (vLLM,
    v1/attention/backends/utils.py: `make_local_attention_virtual_batches`)."""
    if seen.most == 0:
        return context
    return context % seen.most if seen.in_chunks else min(context, seen.most)


def pairs_within(context: int, tokens: int, seen: Seen) -> float:
    """Query-key pairs of a prompt's chunk under the causal mask, each query with the keys that it sees."""
    most = seen.most
    if most == 0:
        return tokens * (context + tokens / 2)
    if seen.in_chunks:
        return pairs_in_chunks(context + tokens, most) - pairs_in_chunks(context, most)
    before, after = min(context, most), min(context + tokens, most)
    return (after * after - before * before) / 2 + most * (tokens - (after - before))


def pairs_in_chunks(length: int, chunk: int) -> float:
    """Those of a sequence from its start whose tokens see their own chunk alone."""
    (many, whole), (one, rest) = chunks_of(length, chunk)
    return many * whole * whole / 2 + one * rest * rest / 2


def sums_of(batches: Sequence[StepBatch], seen: Seen) -> BatchSums:
    """The sums over each batch on a server whose queries see `seen`."""
    chunks = [one.chunks for one in batches]

    def column(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return BatchSums(
        prefills=column([len(each) for each in chunks]),
        prefill_tokens=column([sum(chunk.tokens for chunk in each) for each in chunks]),
        prefill_pairs=column(
            [sum(pairs_within(chunk.context, chunk.tokens, Seen()) for chunk in each) for each in chunks]
        ),
        prefill_context=column([sum(chunk.context for chunk in each) for each in chunks]),
        window_pairs=column(
            [sum(pairs_within(chunk.context, chunk.tokens, seen) for chunk in each) for each in chunks]
        ),
        window_context=column([sum(keys_within(chunk.context, seen) for chunk in each) for each in chunks]),
        whole_prompt_pairs=column(
            [sum(chunk.tokens * (chunk.whole + chunk.tokens / 2) for chunk in each) for each in chunks]
        ),
        decodes=column([len(one.decodes) for one in batches]),
        decode_context=column([sum(one.decodes) for one in batches]),
        window_keys=column([sum(keys_within(context, seen) for context in one.decodes) for one in batches]),
    )
