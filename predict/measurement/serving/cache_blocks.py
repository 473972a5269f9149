"""Blocks of a paged key-value cache: who holds them, which are free, and which tokens the whole ones keep."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

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

    def take(self, wanted: int, shared: Sequence[int] = ()) -> list[int] | None:
        """Hold `shared` blocks and so many new ones; None where too few are free, and then nothing is held."""
        idle = sum(block in self._free for block in shared)
        if wanted + idle > self.free:
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
