"""Requests of a real server: their tokens, the blocks that keep them, and what a step computes of each."""

from __future__ import annotations

from dataclasses import dataclass, field


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

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.prompt + self.output


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One request's part of a step."""

    request: Request
    tokens: int

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
