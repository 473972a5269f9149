"""Blocks of a rank's work: calls that run one after the other, and the communication that overlaps with them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sampling.call import Counted, Phase

Calls = tuple[Counted, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message(Counted):
    """A counted collective, with the name of the group that runs it (`tp`, `shard`, `expert shard`, …)."""

    group: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OverlappedCommunication:
    """Communication of one kind of group (tp, cp, ep, fsdp) that may run while `work` does.

    `share` of the work's time can hide communication, and at most `most` of the communication can be hidden. The work is
    part of the block's calls and is not counted again. `shares_with` are the places in the block of all other communication that
    hides behind some of the same work; what is `ahead` was begun before the block, and goes on while the block waits for communication.
    """

    heading: str
    communication: Calls
    work: Calls = ()
    share: float = 0.0
    most: float = 1.0
    ahead: bool = False
    shares_with: tuple[int, ...] = ()


def sharing(overlapped: tuple[OverlappedCommunication, ...]) -> tuple[OverlappedCommunication, ...]:
    """The communication of one block, each with the places of what hides behind some of the same work."""
    works = [set(map(id, each.work)) for each in overlapped]

    def with_places(place: int, each: OverlappedCommunication) -> OverlappedCommunication:
        own = works[place]
        places = tuple(other for other, work in enumerate(works) if other != place and not own.isdisjoint(work))
        return each if places == each.shares_with else replace(each, shares_with=places)

    return tuple(with_places(place, each) for place, each in enumerate(overlapped))


@dataclass(frozen=True, kw_only=True, slots=True)
class Launching:
    """The host's launching of a layer's phase, or of a share of it; the layer takes at least as long, however short its kernels."""

    phase: Phase
    """`forward` or `backward`."""
    any_layer_us: float = 0.0
    """The whole phase of a layer of any kind by the run's settings; a sampled time comes before it."""
    mixture_us: float = 0.0
    """What the whole phase of a mixture takes in addition."""
    share: float = 1.0
    """Share of the phase: half of the backward for each half of a split one."""
    as_sampled: bool = True
    """Whether samples time layers of this kind: dense ones."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """Calls, and the communication whose exposed part comes on top of them.

    Blocks are compared by identity: the layers of one kind share one, which is priced once.
    """

    calls: Calls
    overlapped: tuple[OverlappedCommunication, ...] = ()
    launching: Launching | None = None
    """What the host needs to launch its kernels; None where that bounds nothing."""
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
