"""Blocks of a rank's work: calls that run one after the other, and the communication that overlaps with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sampling.call import Counted, Phase

Calls = tuple[Counted, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OverlappedCommunication:
    """Communication of one kind of group (tp, cp, ep, fsdp) that may run while `work` does.

    `share` of the work's time can hide communication, and at most `most` of the communication can be hidden. The work is
    part of the block's calls and is not counted again.
    """

    heading: str
    communication: Calls
    work: Calls = ()
    share: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """Calls, and the communication whose exposed part comes on top of them.

    Blocks are compared by identity: the layers of one kind share one, which is priced once.
    """

    calls: Calls
    overlapped: tuple[OverlappedCommunication, ...] = ()
    floor_us: float = 0.0
    """The least time it takes by the run's settings: that in which the host launches its kernels."""
    launched: Phase | None = None
    """Phase of a layer whose launching that is; samples of it come before the settings."""
    synchronous: bool = False
    """Whether the host waits for each kernel before it launches the next."""
    heading: str = ""
    """Heading of the whole block in the ledger; empty where each call stands under its own name."""
    whole: Counted | None = None
    """The same layer as one call. Where it was sampled, the time beyond the sum of its parts is added to the block (glue)."""

    def all_calls(self) -> Iterator[Counted]:
        """Every call that needs a price."""
        yield from self.calls
        for overlapped in self.overlapped:
            yield from overlapped.communication
            yield from overlapped.work


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Repeated:
    """A block that runs `count` times, such as a chunk's layers of one kind."""

    block: Block
    count: float = 1.0


Blocks = tuple[Repeated, ...]


def single(block: Block) -> Blocks:
    return (Repeated(block=block),)


def plain(calls: Calls) -> Blocks:
    """One block of calls without overlapped communication."""
    return single(Block(calls=calls)) if calls else ()


def calls_of(blocks: Blocks) -> Iterator[Counted]:
    for repeated in blocks:
        yield from repeated.block.all_calls()
