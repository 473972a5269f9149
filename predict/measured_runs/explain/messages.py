"""Messages of a trace: its collectives and sends, each with its kind, when it was in flight and how much of it was waiting."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from predict.run.plan import Plan
from predict.step.breakdown import CP, DP, EP, P2P, TP
from sampling.importers.torch_trace import COLLECTIVE_KERNELS
from sampling.importers.torch_trace.events import Kernel, Span, Trace

COMMUNICATION: Mapping[str, str] = {
    TP: "tensor-parallel collectives",
    DP: "data-parallel collectives",
    P2P: "sends between pipeline ranks",
    EP: "expert all-to-all",
    CP: "context-parallel messages",
}
"""Heading of messages → the words for them."""
BARRIER = "barrier"
LIBRARIES = ("gloo:", "nccl:", "ucc:", "mpi:")
"""Beginnings of the spans that process groups record, from the start of a collective to its end."""
SEND_RECV = "sendrecv"
"""Kind of NCCL's kernel of sends and receives together, which its all-to-all is too."""
SENDS = (SEND_RECV, "send", "recv")
GATHERS = ("allgather", "reducescatter")
KINDS = (BARRIER, *GATHERS, "allreduce", "alltoall", "broadcast", *SENDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """One collective or send between its start and its end in µs; `ranks` are those of its group, none where the trace does not say."""

    kind: str
    heading: str
    start_us: float
    end_us: float
    ranks: tuple[int, ...] = ()

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


def messages_of(trace: Trace, plan: Plan) -> tuple[InFlight, ...]:
    """The messages of a rank in the order of their starts: the device's kernels, or the spans of its process groups."""
    kernels = [each for each in trace.kernels if is_collective(each)]
    found = [_of_kernel(each, plan) for each in kernels] or [
        _of_span(span, plan) for span in trace.spans if span.name.startswith(LIBRARIES)
    ]
    return tuple(sorted(found, key=lambda each: each.start_us))


def is_collective(kernel: Kernel) -> bool:
    return kernel.name.startswith(COLLECTIVE_KERNELS)


def kind_of(name: str) -> str:
    """The kind of a collective by its name, however its library writes it; '' for none of ours."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind in KINDS if kind in plain), "")


def _of_span(span: Span, plan: Plan) -> InFlight:
    kind = kind_of(span.name)
    return InFlight(
        kind=kind,
        heading=heading_of_message(kind, plan, _group(span.arguments)),
        start_us=span.start_us,
        end_us=span.end_us,
    )


def _of_kernel(kernel: Kernel, plan: Plan) -> InFlight:
    kind = kind_of(str(kernel.arguments.get("Collective name", "")) or kernel.name)
    ranks = _group(kernel.arguments)
    return InFlight(
        kind=kind,
        heading=heading_of_message(kind, plan, ranks),
        start_us=kernel.start_us,
        end_us=kernel.start_us + kernel.duration_us,
        ranks=ranks,
    )


def _group(arguments: Mapping[str, object]) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", str(arguments.get("Process Group Ranks", ""))))


def heading_of_message(kind: str, plan: Plan, ranks: Sequence[int] = ()) -> str:
    """The heading of a message's time: by its kind and its group's ranks where those show, else by what the plan divides."""
    if kind == BARRIER:
        return BARRIER
    if kind == SEND_RECV and plan.pp == 1 and plan.ep > 1:
        return EP
    if kind in SENDS:
        return P2P if plan.pp > 1 or plan.cp == 1 else CP
    if kind == "alltoall":
        return EP if plan.ep > 1 else CP
    if plan.tp > 1 and (plan.dp * plan.cp == 1 or _neighbours(ranks, plan.tp)):
        return TP
    return CP if kind in GATHERS and _gathers_keys(plan, ranks) else DP


def _gathers_keys(plan: Plan, ranks: Sequence[int]) -> bool:
    """Whether a group gathers keys and values for attention rather than weights or gradients. Where context-parallel ranks are the only
    replicas, both have the same group: then only a state that is not sharded shows, which is reduced and never gathered."""
    if plan.cp == 1 or plan.cp_method != "all_gather":
        return False
    if ranks and plan.dp > 1:
        return len(ranks) == plan.cp and max(ranks) - min(ranks) == (plan.cp - 1) * plan.tp
    return plan.zero == 0


def _neighbours(ranks: Sequence[int], tp: int) -> bool:
    """Whether a group is of `tp` ranks in a row, as frameworks lay out tensor parallelism."""
    return len(ranks) == tp and max(ranks) - min(ranks) == tp - 1


def shortest_us(of_ranks: Sequence[Sequence[InFlight]]) -> list[float]:
    """The transfer of each message of a heading: the shortest time that any rank had it in flight, since the last one to come waits
    for nobody. For ranks that hold unlike numbers of messages, and for sends, the shortest of a kind counts for all."""
    pooled: dict[str, float] = {}
    for message in (each for of_rank in of_ranks for each in of_rank):
        pooled[message.kind] = min(pooled.get(message.kind, message.duration_us), message.duration_us)
    counts = {len(of_rank) for of_rank in of_ranks}
    if len(of_ranks) > 1 and len(counts) == 1 and not any(kind in SENDS for kind in pooled):
        return [min(each.duration_us for each in alike) for alike in zip(*of_ranks, strict=True)]
    return [pooled[each.kind] for each in max(of_ranks, key=len)]


def within(messages: Iterable[InFlight], start_us: float, end_us: float) -> list[InFlight]:
    """The messages that start in a window."""
    return [each for each in messages if start_us <= each.start_us < end_us]
