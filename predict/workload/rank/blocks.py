"""Work of a rank as blocks: calls that follow one another, and communication that runs beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sampling.call import Counted

Calls = tuple[Counted, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Beside:
    """Communication of a kind of group (tp, cp, ep, fsdp) that may run while `work` does: at most `share` of the work's
    time hides at most `most` of it.

    `work` is done by the block's calls already, and not counted again.
    """

    heading: str
    communication: Calls
    work: Calls = ()
    share: float = 0.0
    most: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """The calls, then what of the communication beside work does not hide behind it.

    It takes `floor_us` at least: the time in which the host launches its kernels. Blocks are compared by identity: the
    layers of one kind share one, which is priced once.
    """

    calls: Calls
    beside: tuple[Beside, ...] = ()
    floor_us: float = 0.0
    heading: str = ""
    """Where the ledger puts all of it, empty for each call under its own name."""
    whole: Counted | None = None
    """The same layer in one piece and alone: what it takes longer than its parts is the block's glue, where it was sampled."""

    def all_calls(self) -> Iterator[Counted]:
        """Every call that has to have a price."""
        yield from self.calls
        for beside in self.beside:
            yield from beside.communication
            yield from beside.work


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Repeated:
    """A block that runs `count` times over, such as a chunk's layers of one kind."""

    block: Block
    count: float = 1.0


Blocks = tuple[Repeated, ...]


def single(block: Block) -> Blocks:
    return (Repeated(block=block),)


def plain(calls: Calls) -> Blocks:
    """Calls with nothing beside them."""
    return single(Block(calls=calls)) if calls else ()


def calls_of(blocks: Blocks) -> Iterator[Counted]:
    for repeated in blocks:
        yield from repeated.block.all_calls()
