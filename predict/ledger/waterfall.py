"""Bars of a step's waterfall: µs by class of work, with the 90 % interval that the bounds of the calls leave each.

Calls of one kind (name and phase) move together and different kinds do so independently, as in the step's own interval
(`predict.step.interval`). What a kind adds to the step beyond its own work is waiting: the sends' where tensors between
pipeline ranks are the kind, else the bubble's. So the changes of the bars add up to the change of the step, kind by kind. The
composition error belongs to the step as a whole, and to none of its bars.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from predict.interval import from_shifts
from predict.prices.price_list import Priced, Prices
from predict.rank.exchanges import FSDP
from predict.step.breakdown import (
    BUBBLE,
    CP,
    DP,
    EP,
    GLUE,
    HOST,
    OPTIMIZER,
    OTHER,
    OVERHEAD,
    P2P,
    STRAGGLERS,
    TP,
    calls_by_heading,
)
from predict.step.interval import COMMON_SHARE, FLOOR, CallKind
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket, PricedBlock, launched_us, total_us
from predict.step.priced_rank import BUCKETS, action_counts
from predict.workload.layer import RECOMPUTE
from sampling.arithmetic.operator import Operator
from sampling.call import Counted, registry
from sampling.collectives.kinds import SendRecv

COMPUTE, MEMORY = "compute", "memory-bound"
TENSOR, EXPERT, CONTEXT = "TP exposed", "EP exposed", "CP exposed"
SENDS, BUBBLES, DATA = "PP sends", "PP bubble", "DP exposed"
RUNTIME = "runtime"
CLASSES = (COMPUTE, MEMORY, TENSOR, EXPERT, CONTEXT, SENDS, DATA, RUNTIME, BUBBLES)
"""The classes in the order in which a waterfall stacks them."""
COMMUNICATION = frozenset({TENSOR, EXPERT, CONTEXT, SENDS, DATA})
IDLE = frozenset({BUBBLES, RUNTIME})
_NAMED = {
    TP: TENSOR,
    EP: EXPERT,
    CP: CONTEXT,
    P2P: SENDS,
    BUBBLE: BUBBLES,
    DP: DATA,
    FSDP: DATA,
    **dict.fromkeys((HOST, GLUE, OTHER, STRAGGLERS, OVERHEAD), RUNTIME),
}


def class_of(heading: str) -> str:
    """The class of a heading of the ledger; operators that arithmetic does not bound move memory."""
    return _NAMED.get(heading) or (COMPUTE if heading in _computing() else MEMORY)


@cache
def _computing() -> frozenset[str]:
    """Headings of operators that are bound by arithmetic, and of whole layers."""
    operators = [each for each in registry().values() if issubclass(each, Operator)]
    return frozenset({RECOMPUTE, *(each.NAME for each in operators if each.KIND in ("gemm", "attention"))})


ROUNDING = 1e-9
"""Share of the step below which a sum of floats is nothing."""
Change = tuple[float, float]
"""µs that a step changes at a kind's lower and upper bound."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A class of work: its µs per step, the mean over pipeline ranks, within its 90 % bounds, and its headings of the ledger."""

    name: str
    time_us: float
    low_us: float
    high_us: float
    headings: Mapping[str, float]


def waterfall(prediction: Prediction) -> tuple[Bar, ...]:
    """The bars in the order of CLASSES, without empty ones; they add up to the step."""
    headings: dict[str, dict[str, float]] = defaultdict(dict)
    for heading, time_us in prediction.breakdown_us.items():
        if abs(time_us) > ROUNDING * prediction.median_us:
            headings[class_of(heading)][heading] = time_us
    changes = _changes(prediction)
    return tuple(_bar(name, headings[name], changes.get(name, {})) for name in CLASSES if headings.get(name))


def _bar(name: str, headings: Mapping[str, float], changes: Mapping[CallKind, Change]) -> Bar:
    time_us = sum(headings.values())
    time = from_shifts(
        time_us,
        below=[min(0.0, *each) for each in changes.values()],
        above=[max(0.0, *each) for each in changes.values()],
    )
    return Bar(name=name, time_us=time_us, low_us=time.low, high_us=time.high, headings=dict(headings))


def _changes(prediction: Prediction) -> dict[str, dict[CallKind, Change]]:
    """Changes by class and kind of call: of the work, and of the waiting that makes up the rest of the step's change."""
    of_work: dict[str, dict[CallKind, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for (block, ascribed), times in _times_of_blocks(prediction).items():
        for found, kind, below, above in _of_block(block, prediction.prices):
            name = ascribed or found
            of_work[name][kind][0] += times * below
            of_work[name][kind][1] += times * above
    changes: dict[str, dict[CallKind, Change]] = {
        name: {kind: (below, above) for kind, (below, above) in kinds.items()} for name, kinds in of_work.items()
    }
    for kind, (below, above) in prediction.kind_shifts_us.items():
        worked = [kinds[kind] for kinds in changes.values() if kind in kinds]
        waiting = SENDS if kind[0] == SendRecv.NAME else BUBBLES
        rest = (below - sum(low for low, _ in worked), above - sum(high for _, high in worked))
        changes.setdefault(waiting, {})[kind] = rest
    return changes


def _times_of_blocks(prediction: Prediction) -> dict[tuple[PricedBlock, str], float]:
    """The times that each block counts in the step, the mean over pipeline ranks; hidden communication by its exposed share.

    Beside a block stands the class of all of its calls, where the ledger does not separate them.
    """
    times: dict[tuple[PricedBlock, str], float] = defaultdict(float)

    def count(bucket: Bucket, often: float, ascribed: str = "") -> None:
        for repeated in bucket.blocks:
            times[repeated.priced, ascribed] += often * repeated.count / len(prediction.ranks)

    for rank, counts in zip(prediction.ranks, action_counts(prediction.timeline.order), strict=True):
        count(rank.blocking_reduction, 1.0, DATA)
        count(rank.optimizer, 1.0, "" if prediction.run.execution.whole_layers else class_of(OPTIMIZER))
        for bucket, exposed_us in (
            (rank.gradient_reduction, rank.exposed_reduction_us),
            (rank.parameter_all_gather, rank.exposed_all_gather_us),
        ):
            count(bucket, exposed_us / bucket.median_us if bucket.median_us else 0.0, DATA)
        for chunk, of_chunk in zip(rank.chunks, counts, strict=True):
            for kind, name in BUCKETS.items():
                if of_chunk[kind]:
                    count(getattr(chunk, name), float(of_chunk[kind]))
    return times


def _of_block(block: PricedBlock, prices: Prices) -> Iterator[tuple[str, CallKind, float, float]]:
    """(class, kind, change at the lower bound, change at the upper bound) of each call of a block, in µs."""
    for unit in block.units:
        for name, share in _classes_of(unit, block, prices).items():
            yield name, *_change(unit, share)
    for each in block.overlapped:
        whole_us = total_us(each.communication)
        for unit in each.communication:
            yield class_of(each.of.heading), *_change(unit, each.exposed_us / whole_us if whole_us else 0.0)
    if block.floor:
        bounds = (block.floor.low_us, block.floor.high_us)
        synchronous = block.block.synchronous
        low_us, high_us = (
            launched_us(block.busy_us, floor_us, synchronous=synchronous) - block.median_us for floor_us in bounds
        )
        yield RUNTIME, FLOOR, float(low_us), float(high_us)


def _classes_of(unit: Priced, block: PricedBlock, prices: Prices) -> dict[str, float]:
    """Shares of a call's time by class; a layer that was timed in one piece has those of its parts."""
    if block.block.heading:
        return {class_of(block.block.heading): 1.0}
    shares: dict[str, float] = defaultdict(float)
    if unit.total_us:
        for heading, time_us in calls_by_heading(
            [Counted(call=unit.call, phase=unit.phase, count=unit.count)], prices
        ).items():
            shares[class_of(heading)] += time_us / unit.total_us
    return shares


def _change(unit: Priced, share: float) -> tuple[CallKind, float, float]:
    time = unit.time
    weight = share * unit.count * (COMMON_SHARE if time.source == "analytic" else 1.0)
    below, above = weight * (time.low_us - time.median_us), weight * (time.high_us - time.median_us)
    return (unit.call.NAME, unit.phase), below, above
