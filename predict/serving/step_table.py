"""The time of a server's steps as tables, so that a scheduler asks for tens of thousands of them in milliseconds.

step = products[tokens] + attention[decodes, mean context] + attention to windows[decodes, mean keys] + the chunks' own + time per request
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from predict.serving.batch import BatchSums, Seen
from predict.serving.speculation import Speculation
from regressors.features.arrays import Floats
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepTable:
    """Times in µs."""

    decode_us: Floats
    """Time by number of decodes, of a step of decodes alone: all but what reads the cache."""
    mixed_us: Floats
    """Time by number of tokens, of a step with a prefill chunk: all but what reads the cache."""
    attention_us: Floats
    """Reading keys, values and states: by number of decodes and by mean context at `contexts`."""
    contexts: Floats
    """Tokens, rising from 0; attention is linear between two of them, and goes on so beyond the last."""
    prefill_token_us: float
    """Time per token of a chunk, beyond what a decode's costs."""
    pair_us: float
    """Time per query-key pair of the chunks."""
    whole_prompt: bool
    """The pairs are those of the whole prompt, as the published formula counts them."""
    context_us: float
    """Time per key that the chunks read from the cache."""
    seen: Seen = field(default_factory=Seen)
    """The keys that a query sees of layers with a window. Sums are taken with it."""
    window_attention_us: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Reading keys and values there: by number of decodes, and by the mean of the keys that these see at `contexts`; empty where there are
    no such layers."""
    window_pair_us: float = 0.0
    window_context_us: float = 0.0
    """The times per pair and per key of a chunk there."""
    request_us: float
    """Time per request of the batch."""
    floor_us: float = 0.0
    """Least time of all decodes of a step, apart from that per request."""
    speculation: Speculation = field(default_factory=Speculation)
    """The drafts that the decodes verify, whose time the decodes' holds."""

    @property
    def decode_tokens(self) -> int:
        """Tokens that a decode computes: its own and its drafts."""
        return 1 + self.speculation.drafts

    @property
    def most_decodes(self) -> int:
        return len(self.decode_us) - 1

    @property
    def most_tokens(self) -> int:
        return len(self.mixed_us) - self.decode_tokens

    def times_us(self, sums: BatchSums) -> Floats:
        """The step's time for each batch. UserError for more decodes or tokens than the engine takes."""
        decodes, tokens = sums.decodes.astype(np.intp), (sums.prefill_tokens + sums.decodes).astype(np.intp)
        if decodes.max(initial=0) > self.most_decodes or tokens.max(initial=0) > self.most_tokens:
            raise UserError(
                f"step batch: {decodes.max()} decodes and {tokens.max()} tokens, where the engine takes {self.most_decodes} "
                f"(max_num_seqs) and {self.most_tokens} (max_num_batched_tokens); give smaller batches, or raise these"
            )
        pure = sums.prefill_tokens == 0
        computed = np.minimum(tokens + self.speculation.drafts * decodes, len(self.mixed_us) - 1)
        of_decodes, attention = self.decode_us[decodes], self._attention_us(decodes, sums)
        if self.floor_us:
            floored = np.maximum(of_decodes, self.floor_us)
            attention = np.maximum(of_decodes + attention, self.floor_us) - floored
            of_decodes = floored
        products = np.where(pure, of_decodes, self.mixed_us[computed])
        pairs = sums.whole_prompt_pairs if self.whole_prompt else sums.prefill_pairs
        chunks = self.pair_us * pairs + self.context_us * sums.prefill_context
        chunks += self.window_pair_us * sums.window_pairs + self.window_context_us * sums.window_context
        chunks += self.prefill_token_us * sums.prefill_tokens
        whole: Floats = products + attention + chunks + self.request_us * sums.requests
        return whole

    def _attention_us(self, decodes: np.ndarray, sums: BatchSums) -> Floats:
        found = self._read_us(self.attention_us, decodes, sums.decode_context)
        return found + self._read_us(self.window_attention_us, decodes, sums.window_keys) if self.seen.most else found

    def _read_us(self, attention_us: Floats, decodes: np.ndarray, keys: Floats) -> Floats:
        """One of the two tables of attention at so many decodes with so many keys, all together."""
        mean = keys / np.maximum(decodes, 1)
        column = np.clip(np.searchsorted(self.contexts, mean, side="right") - 1, 0, len(self.contexts) - 2)
        before, after = self.contexts[column], self.contexts[column + 1]
        low, high = attention_us[decodes, column], attention_us[decodes, column + 1]
        found: Floats = low + (high - low) * (mean - before) / (after - before)
        return found

    def at_least(self, floor_us: float) -> StepTable:
        """The same with steps of at least so many µs, apart from their chunks' keys and requests' own."""
        return replace(self.prompts_at_least(floor_us), floor_us=floor_us)

    def prompts_at_least(self, floor_us: float, beyond: int = 0) -> StepTable:
        """The same with steps of a chunk and of more than `beyond` tokens of at least so many µs, apart from its keys and requests' own."""
        tokens = np.arange(len(self.mixed_us))
        floored = np.maximum(self.mixed_us, floor_us - self.prefill_token_us * tokens)
        return replace(self, mixed_us=np.where(tokens > beyond, floored, self.mixed_us))

    def scaled(self, factor: float) -> StepTable:
        """The same with every time multiplied."""
        return replace(
            self, **{each.name: factor * getattr(self, each.name) for each in fields(self) if each.name.endswith("_us")}
        )
