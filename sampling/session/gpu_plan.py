"""The plan of a GPU session: which calls are timed, in the order in which they teach most per second.

probes    what the device is: a copy, a large product, a layer that is all launch
anchors   one call of every kind, so that no kind is without a row if the session ends early
named     calls that given runs need, and their parts
space     calls of drawn models, kind by kind in turn, so that every prefix fills the space evenly
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, Request
from sampling.cells.layer import DenseLayer
from sampling.choosing.calls_file import read_calls_file
from sampling.choosing.ranges import ShapeRanges, read_ranges
from sampling.choosing.shapes import draw_models
from sampling.choosing.tasks import requests_of_models, requests_of_parts
from sampling.hardware.cluster import Cluster, hardware_facts, load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.speed_of_light import physical_bound_us

PROBES, ANCHORS, NAMED, SPACE = "probes", "anchors", "named", "space"
COPY_BYTES = 2**30
PRODUCT = 8192
CPU_SHARE = 8
"""Divisor of the probes' sizes on a CPU, where they would take minutes."""
SMALL_LAYER: dict[str, Any] = {
    **{"batch": 1, "seq_len": 128, "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "ffn": 1536},
    **{"gated": True, "norm": "rms", "rope": True},
}
ANCHOR_CHOICES = 8
"""Drawn calls of a kind, the shortest of which is its anchor."""
LONG_US = 20_000.0
"""Bound of a phase above which its call comes last: it takes as long as ten others, and shorter ones show the same throughput."""
TURNS_OF_PRODUCTS = 2
"""Calls per round of the kinds that carry a step (matrix products, attention and whole layers); other kinds have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A request and the section of the plan that it is in."""

    section: str
    request: Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The requests in their order, each phase of a call once; `left_out` counts calls that need several GPUs or a compiler."""

    planned: tuple[Planned, ...]
    left_out: int

    @property
    def phases(self) -> int:
        return sum(len(each.request.phases) for each in self.planned)


def make_plan(hardware: str, *, calls: Path | None, models: int, compiled: bool) -> Plan:
    """The plan of one device; `calls` is a file of `predict calls`, `models` how many are drawn.

    ConfigError for a calls file with faults or of other hardware.
    """
    ranges = read_ranges(None, hardware)
    cluster = load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile="")
    drawn = list(requests_of_models(draw_models(ranges, models), 1))
    long = [request for request in drawn if _longest_us(request, cluster) > LONG_US]
    short = [request for request in drawn if _longest_us(request, cluster) <= LONG_US]
    sections = {
        PROBES: probes(ranges, on_cpu=hardware_facts(hardware).kind == "cpu"),
        ANCHORS: one_of_every_kind((each for each in drawn if compiled or not _is_compiled(each.call)), cluster),
        NAMED: _named(calls, hardware_facts(hardware).name) if calls else (),
        SPACE: (*in_turns(short), *in_turns(long)),
    }
    seen: dict[Call, set[Phase]] = {}
    planned, left_out = [], set()
    for section, requests in sections.items():
        for request in requests:
            if request.call.group_size > 1 or (_is_compiled(request.call) and not compiled):
                left_out.add(request.call)
                continue
            known = seen.setdefault(request.call, set())
            if phases := tuple(phase for phase in request.phases if phase not in known):
                known.update(phases)
                planned.append(Planned(section=section, request=replace(request, phases=phases)))
    return Plan(planned=tuple(planned), left_out=len(left_out))


def probes(ranges: ShapeRanges, *, on_cpu: bool) -> Sequence[Request]:
    """A copy of 1 GiB, a product of 8,192 cubed, and a layer so small that its time is the time of its launch by the host."""
    share = CPU_SHARE if on_cpu else 1
    side = PRODUCT // share
    copy = Stream(dtype=ranges.dtype, size_bytes=COPY_BYTES // share)
    product = Gemm(dtype=ranges.dtype, m=side, n=side, k=side)
    layer = DenseLayer(dtype=ranges.dtype, **SMALL_LAYER, bias=False, qkv_bias=False, tp=1, sp=False)
    return [
        Request(call=copy, phases=("forward",)),
        Request(call=product, phases=("forward",)),
        Request(call=layer, phases=("forward", "backward")),
    ]


def one_of_every_kind(requests: Iterable[Request], cluster: Cluster) -> Sequence[Request]:
    """The shortest of the first few requests of each kind of call, so that every kind has a row soon."""
    first: dict[str, list[Request]] = {}
    for request in requests:
        of_kind = first.setdefault(request.call.NAME, [])
        if len(of_kind) < ANCHOR_CHOICES:
            of_kind.append(request)
    return [min(of_kind, key=lambda request: _bound_us(request, cluster)) for of_kind in first.values()]


def _bound_us(request: Request, cluster: Cluster) -> float:
    return sum(physical_bound_us(request.call, phase, cluster) for phase in request.phases)


def _longest_us(request: Request, cluster: Cluster) -> float:
    return max(physical_bound_us(request.call, phase, cluster) for phase in request.phases)


def in_turns(requests: Iterable[Request]) -> Iterator[Request]:
    """The requests of each kind in their order, the kinds in turn."""
    queues: dict[str, deque[Request]] = {}
    for request in requests:
        queues.setdefault(request.call.NAME, deque()).append(request)
    while any(queues.values()):
        for queue in queues.values():
            for _ in range(min(len(queue), _turns(queue[0].call) if queue else 0)):
                yield queue.popleft()


def _turns(call: Call) -> int:
    carries_a_step = bool(call.parts(call.PHASES[0])) or (isinstance(call, Operator) and call.POWER_LIMITED)
    return TURNS_OF_PRODUCTS if carries_a_step else 1


def _named(calls: Path, gpu: str) -> Iterator[Request]:
    requests = [request for of_ranks in read_calls_file(calls, gpu).values() for request in of_ranks]
    yield from requests
    yield from requests_of_parts(requests)


def _is_compiled(call: Call) -> bool:
    """Whether torch.compile builds it, which takes many times as long as the timing."""
    fields = call.fields()
    return bool(fields.get("compiled") or fields.get("fused_softmax"))
