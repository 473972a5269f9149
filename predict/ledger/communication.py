"""The communication book: every kind of message of a step, with its group, bytes and count, its time, and how much of it is hidden."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from predict.ledger.compute import StepItem
from predict.prices.collectives import algorithms_us
from predict.rank.exchanges import FSDP
from predict.run.training_run import TrainingRun
from predict.step.breakdown import CP, DP, EP, P2P, TP
from predict.workload.chunks import PIPELINE
from sampling.call import Call
from sampling.cells.pipeline_action import PipelineAction
from sampling.collectives.kinds import AllGather, Collective
from sampling.operators.memory_bound import Stream

COPY = "copy"
"""Name of a pass over a message's bytes in device memory, which comes with sharded weights or wider gradients."""
CARRIED: Mapping[str, str] = {TP: "activations", CP: "keys and values", EP: "tokens", P2P: "activations"}
"""Heading → the content of its messages, where all have the same."""
EXPERT = "expert "
"""Beginning of the name of a group of ranks that hold the same experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageTime:
    """One kind of message on a GPU of the mean pipeline rank. Bytes are as its kind counts them (`sampling.collectives.kinds`)."""

    heading: str
    kind: str
    group: str
    carries: str
    """Its content: activations, tokens, gradients, expert gradients, …"""
    ranks: int
    ranks_per_node: int
    size_bytes: int
    wire_bytes: float
    """Bytes that the busiest rank puts on its link; 0 for a copy and a pipeline action."""
    algorithm: str
    """The fastest algorithm by the priors of collectives; empty for a copy, and where the time was not asked of them."""
    source: str
    count: float
    """Times a step."""
    total_us: float
    """Time of all of them alone."""
    exposed_us: float
    """Time that they add to the step."""

    @property
    def each_us(self) -> float:
        return self.total_us / self.count if self.count else 0.0

    @property
    def hidden_us(self) -> float:
        """Time behind other work. A send delays all ranks behind it, and in layers measured whole waiting is part of a message, so that
        what it adds may exceed its own time: then 0."""
        return max(0.0, self.total_us - self.exposed_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicationBook:
    """The messages of a step, those that add most to it first."""

    messages: tuple[MessageTime, ...]

    @property
    def total_us(self) -> float:
        return sum(message.total_us for message in self.messages)

    @property
    def exposed_us(self) -> float:
        """Time that communication adds to the step."""
        return sum(message.exposed_us for message in self.messages)

    @property
    def hidden_us(self) -> float:
        return sum(message.hidden_us for message in self.messages)

    def exposed_by_heading_us(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for message in self.messages:
            found[message.heading] = found.get(message.heading, 0.0) + message.exposed_us
        return found


def communication_book(run: TrainingRun, items: Iterable[StepItem]) -> CommunicationBook:
    alike: dict[tuple[object, ...], list[StepItem]] = {}
    for each in items:
        if each.is_message:
            item = each.item
            alike.setdefault((item.heading, item.group, item.call, item.source), []).append(each)
    messages = [_message(run, members) for members in alike.values()]
    return CommunicationBook(messages=tuple(sorted(messages, key=lambda each: (-each.exposed_us, -each.total_us))))


def _message(run: TrainingRun, members: list[StepItem]) -> MessageTime:
    item = members[0].item
    call = item.call
    collective = call if isinstance(call, Collective) else None
    group = item.group or (PIPELINE if item.heading == P2P else "")
    return MessageTime(
        heading=item.heading,
        kind=COPY if call is None or isinstance(call, Stream) else call.NAME,
        group="" if isinstance(call, Stream) else group,
        carries=_carries(item.heading, group, call),
        ranks=call.group_size if call else 1,
        ranks_per_node=collective.ranks_per_node if collective else call.group_size if call else 1,
        size_bytes=call.size_bytes if isinstance(call, Collective | Stream | PipelineAction) else 0,
        wire_bytes=collective.bytes_on_wire() if collective else 0.0,
        algorithm=_algorithm(run, collective) if collective and item.source == "analytic" else "",
        source=item.source or "assumed",
        count=sum(each.calls for each in members),
        total_us=sum(each.alone_us for each in members),
        exposed_us=sum(each.time_us for each in members),
    )


def _carries(heading: str, group: str, call: Call | None) -> str:
    if heading in CARRIED:
        return CARRIED[heading]
    if heading not in (DP, FSDP):
        return heading
    what = "weights" if isinstance(call, AllGather) else "gradients"
    if isinstance(call, Stream):
        return group or "gradients"
    return f"{EXPERT}{what}" if group.startswith(EXPERT) else what


def _algorithm(run: TrainingRun, call: Collective) -> str:
    times = algorithms_us(call, run.cluster)
    return min(times, key=lambda name: times[name])
