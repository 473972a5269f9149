"""The scheduler of a real server, after vLLM V1 (vllm/v1/core/sched/scheduler.py), over real blocks.

It shares no code with the simulated loop of `predict.serving.scheduler`, so that each is a witness of the other.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from predict.serving.server import EngineSettings
from sampling.errors import UserError

# Requests of a real server: their tokens, the blocks that keep them, and what a step computes of each.


@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """One request, from its arrival to its last token."""

    index: int
    """Its place in the traffic."""
    tokens: list[int]
    """The prompt, then what was generated."""
    prompt: int
    """Tokens of the prompt."""
    output: int
    """Tokens to generate."""
    computed: int = 0
    """Leading tokens whose keys and values are in the cache."""
    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """The keys of its whole blocks."""
    kept: bytes = b""
    """Keys and values of its prompt but for the last token, as another server computed them, until they are in its blocks."""

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.prompt + self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One request's part of a step."""

    request: Request
    tokens: int
    drafts: tuple[int, ...] = ()
    """Tokens that may follow on a decode's, which the step verifies."""

    @property
    def context(self) -> int:
        """Tokens of the request that are in the cache before the step."""
        return self.request.computed

    @property
    def decode(self) -> bool:
        """Whether it computes the one token that was generated last."""
        return self.tokens == 1 and self.context >= self.request.prompt

    @property
    def last(self) -> bool:
        """Whether all tokens of the request are computed after it, so that the next one is known."""
        return self.context + self.tokens == len(self.request.tokens)

    def accepted(self, following: Sequence[int]) -> int:
        """Leading drafts that are what the model itself says, by its tokens after the turn's last one and after each draft."""
        return next((place for place, draft in enumerate(self.drafts) if draft != following[place]), len(self.drafts))


LONGEST_MATCH = 3
"""Tokens at the end of a text that are looked for earlier in it, at most."""


def ngram_drafts(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """The tokens that followed the last ones of a text where they stood before, the latest place and the longest match first (Saxena's
    prompt lookup; vllm/v1/spec_decode/ngram_proposer.py); where there is no such place, or too few follow, the last token again."""
    found: list[int] = []
    for size in range(min(LONGEST_MATCH, len(tokens) - 1), 0, -1):
        end = list(tokens[-size:])
        places = (at for at in range(len(tokens) - size - 1, -1, -1) if list(tokens[at : at + size]) == end)
        if (place := next(places, None)) is not None:
            found = list(tokens[place + size : place + size + count])
            break
    return tuple((found + [tokens[-1]] * count)[:count])


# Blocks of a paged key-value cache: who holds them, which are free, and which tokens the whole ones keep.

ROOT = b""


class CacheBlocks:
    """Blocks 0 to `count` − 1 of `block` tokens each.

    Free blocks are taken in the order in which they were freed; until then a whole one is still found by its tokens.
    """

    def __init__(self, count: int, block: int) -> None:
        self.block = block
        self._free = dict.fromkeys(range(count))
        self._holders = [0] * count
        self._known: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self.count = count

    @property
    def free(self) -> int:
        return len(self._free)

    def keys(self, tokens: Sequence[int]) -> list[bytes]:
        """A key for each whole block of a sequence, which depends on all tokens up to the block's last."""
        found, before = [], ROOT
        for end in range(self.block, len(tokens) + 1, self.block):
            before = hashlib.sha256(before + repr(tokens[end - self.block : end]).encode()).digest()
            found.append(before)
        return found

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks that keep the leading keys."""
        found = []
        for key in keys:
            if key not in self._known:
                break
            found.append(self._known[key])
        return found

    def fits(self, wanted: int, shared: Sequence[int]) -> bool:
        """Whether so many new blocks are free beside `shared` ones."""
        return wanted + sum(block in self._free for block in shared) <= self.free

    def take(self, wanted: int, shared: Sequence[int] = ()) -> list[int] | None:
        """Hold `shared` blocks and so many new ones; None where too few are free, and then nothing is held."""
        if not self.fits(wanted, shared):
            return None
        for block in shared:
            self._free.pop(block, None)
            self._holders[block] += 1
        new = []
        for _ in range(wanted):
            block = next(iter(self._free))
            del self._free[block]
            self._forget(block)
            self._holders[block] = 1
            new.append(block)
        return [*shared, *new]

    def remember(self, block: int, key: bytes) -> None:
        """Let a whole block be found by its key, unless another block is found by it already."""
        if key not in self._known:
            self._forget(block)
            self._known[key] = block
            self._keys[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """Hold blocks of a sequence no longer; its last ones are reused first."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None:
            del self._known[key]


class Scheduler:
    """Waiting and running requests of a synchronous engine, and the blocks that they hold."""

    def __init__(self, settings: EngineSettings, blocks: int, drafts: int = 0) -> None:
        """`drafts` tokens are proposed after each decode's, from the request's own text."""
        self.settings, self.drafts = settings, drafts
        self.cache = CacheBlocks(blocks, settings.block_size)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = 0

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def plan(self) -> list[Turn]:
        """The turns of the next step: running requests first, then waiting ones unless one was just preempted."""
        budget = max(self.settings.max_num_batched_tokens, self.settings.max_num_seqs)
        turns: list[Turn] = []
        before = self.preemptions
        while len(turns) < len(self.running) and budget > 0:
            request = self.running[len(turns)]
            tokens = min(len(request.tokens) - request.computed, budget)
            turn = Turn(request=request, tokens=tokens)
            drafts = min(self.drafts, budget - tokens) if turn.decode else 0
            if not self._make_room(request, tokens + drafts):
                break
            turns.append(replace(turn, drafts=ngram_drafts(request.tokens, drafts)) if drafts else turn)
            budget -= tokens + drafts
        if self.preemptions == before:
            turns += self._admitted(budget)
        return turns

    def finish(self, turns: Sequence[Turn], next_tokens: Sequence[Sequence[int]]) -> list[Request]:
        """Take up a step's result, the next tokens after each turn's last one and after each of its drafts; the requests that it ended,
        whose blocks are free again."""
        for turn, following in zip(turns, next_tokens, strict=True):
            request = turn.request
            if turn.last:
                made = following[: 1 + turn.accepted(following)][
                    : request.prompt + request.output - len(request.tokens)
                ]
                request.computed += len(made) - 1
                request.tokens += made
            request.computed += turn.tokens
        ended = [request for request in self.running if request.done]
        for request in ended:
            self.cache.release(request.blocks)
        self.running = [request for request in self.running if not request.done]
        return ended

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Give a running request the blocks that it lacks, at the expense of those admitted last; False where it was one."""
        while True:
            held = self.cache.take(self._lacking(request, request.computed + tokens))
            if held is not None:
                request.blocks += held
                self._remember(request, request.computed + tokens)
                return True
            last = self.running.pop()
            self.cache.release(last.blocks)
            last.blocks, last.computed = [], 0
            self.waiting.appendleft(last)
            self.preemptions += 1
            if last is request:
                return False

    def _admitted(self, budget: int) -> list[Turn]:
        """Waiting requests that join, first come first served, each only where all its tokens fit."""
        turns = []
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting[0]
            known = [] if request.kept else self._known(request)
            found = request.prompt if request.kept else len(known) * self.cache.block
            tokens = min(len(request.tokens) - found, budget)
            if found + tokens < len(request.tokens) and not self.settings.chunked_prefill:
                break
            whole, wanted = (-(-end // self.cache.block) - len(known) for end in (len(request.tokens), found + tokens))
            held = self.cache.take(wanted, known) if self.cache.fits(whole, known) else None
            if held is None:
                self._require_progress(request)
                break
            request.blocks, request.computed = held, found
            self.running.append(self.waiting.popleft())
            self._remember(request, found + tokens)
            turns.append(Turn(request=request, tokens=tokens))
            budget -= tokens
        return turns

    def _require_progress(self, request: Request) -> None:
        """UserError for a request that does not fit although it is alone."""
        if not self.running:
            raise UserError(
                f"request {request.index}: {len(request.tokens)} tokens do not fit into {self.cache.count} blocks of "
                f"{self.cache.block}; raise engine.memory_utilization, or shorten load.prompt"
            )

    def _known(self, request: Request) -> list[int]:
        """Cached blocks of its leading tokens, but never the block of its last token, which must be computed."""
        if not self.settings.prefix_caching:
            return []
        request.keys = self.cache.keys(request.tokens)
        return self.cache.find(request.keys)[: (len(request.tokens) - 1) // self.cache.block]

    def _lacking(self, request: Request, tokens: int) -> int:
        return max(0, -(-tokens // self.cache.block) - len(request.blocks))

    def _remember(self, request: Request, tokens: int) -> None:
        """Let the whole blocks of the first `tokens` be found: those of the prompt, which no later token changes."""
        if self.settings.prefix_caching:
            for place in range(request.computed // self.cache.block, tokens // self.cache.block):
                if place < len(request.keys):
                    self.cache.remember(request.blocks[place], request.keys[place])
