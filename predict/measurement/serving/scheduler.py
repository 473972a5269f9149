"""The scheduler of a real server, after vLLM V1 (vllm/v1/core/sched/scheduler.py), over real blocks.

It shares no code with the simulated loop of `predict.serving.scheduler`, so that each is a witness of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from predict.measurement.serving.cache_blocks import CacheBlocks
from predict.measurement.serving.requests import Request, Turn
from predict.serving.server import EngineSettings
from sampling.errors import UserError


class Scheduler:
    """Waiting and running requests of a synchronous engine, and the blocks that they hold."""

    def __init__(self, settings: EngineSettings, blocks: int) -> None:
        self.settings = settings
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
            if not self._make_room(request, tokens):
                break
            turns.append(Turn(request=request, tokens=tokens))
            budget -= tokens
        if self.preemptions == before:
            turns += self._admitted(budget)
        return turns

    def finish(self, turns: Sequence[Turn], next_tokens: Sequence[int]) -> list[Request]:
        """Take up a step's result, the next token of each turn; the requests that it ended, whose blocks are free again."""
        for turn, token in zip(turns, next_tokens, strict=True):
            request, last = turn.request, turn.last
            request.computed += turn.tokens
            if last:
                request.tokens.append(token)
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
        """Waiting requests that join, first come first served."""
        turns = []
        while self.waiting and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting[0]
            known = self._known(request)
            found = len(known) * self.cache.block
            tokens = min(len(request.tokens) - found, budget)
            if found + tokens < len(request.tokens) and not self.settings.chunked_prefill:
                break
            wanted = -(-(found + tokens) // self.cache.block) - len(known)
            held = self.cache.take(wanted, known)
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
        """Cached blocks of its leading tokens, but never that of its last token, which must be computed."""
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
