"""Breakdown: the step's time as a ledger of headings, which sum the items of its blocks, call by call.

A whole cell was measured, its parts were predicted: what the parts do not explain is the tensor-parallel group's communication and
waiting where the cell spans one, else the parts that no sample covers, else the glue between operators ("other"). Where the parts cost
more than the whole (they run warm inside it), they are scaled down to it, so that items always add up to what was priced.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from predict.prices.price_list import Priced, Prices
from predict.rank.blocks import Message, OverlappedCommunication
from predict.run.training_run import TrainingRun
from predict.schedules.engine.order import Order
from predict.schedules.engine.timing import simulate
from predict.step.priced_block import Bucket, PricedBlock, PricedOverlap, total_us
from predict.step.priced_rank import (
    BUCKETS,
    PricedRank,
    action_counts,
    chunk_times,
    step_time_us,
    stragglers_factor,
    with_windows,
)
from predict.workload.decompose import RankCalls
from regressors.bank.times import Source
from sampling.arithmetic.operator import add_terms
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective

TP, CP, EP, OTHER = "tp", "cp", "ep", "other"
GLUE = "glue"
"""Time of sampled whole layers beyond their operators."""
HOST = "host"
"""Time that launching kernels takes beyond their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A counted call, or a time that belongs to none, in µs. `time_us` is what it adds to its block: of communication the part
    that nothing hides; `alone_us` what the calls take by themselves."""

    heading: str
    time_us: float
    alone_us: float = 0.0
    count: float = 1.0
    call: Call | None = None
    phase: Phase | None = None
    source: Source | None = None
    group: str = ""
    """Name of the group that a collective runs in."""
    beside: bool = False
    """Whether it is communication that other work may hide, or what comes with it."""
    guessed: bool = False
    """Whether it is an operator that no sample covers, of a whole that was sampled: only the whole's time is known."""

    @property
    def hidden_us(self) -> float:
        """Time behind other work; below 0 where what it slows down costs more than it hides."""
        return self.alone_us - self.time_us


def heading(call: Call) -> str:
    """The ledger's heading for an atomic call: its own name unless it declares another."""
    return TP if isinstance(call, Collective) else call.HEADING or call.NAME


def items_of_block(priced: PricedBlock, prices: Prices) -> tuple[Item, ...]:
    """The items of a block; their times add up to the block's median."""
    items = [item for one in priced.block.calls for item in items_of_call(one, prices)]
    if priced.glue_us:
        items = _guessed(items)
    if priced.glue_us > 0:
        glue = Item(heading=GLUE, time_us=priced.glue_us, source=_source_of_whole(priced, prices))
        items = _with_rest(items, glue)
    elif priced.glue_us:
        items = _scaled(items, 1 + priced.glue_us / sum(item.time_us for item in items))
    for each, messages in zip(priced.overlapped, priced.block.overlapped, strict=True):
        items += _exposed(each, messages)
    if priced.floor and priced.median_us > priced.busy_us:
        sampled = priced.floor.source if priced.floor.source != "analytic" else None  # else a setting states it
        items.append(Item(heading=HOST, time_us=priced.median_us - priced.busy_us, source=sampled))
    return tuple(items)


def items_of_call(one: Counted, prices: Prices) -> tuple[Item, ...]:
    """The items of a counted call: itself, or the parts that explain it."""
    units = prices.priced([one])
    parts = () if one.call.HEADING else prices.parts(one)
    if not parts:
        group = one.group if isinstance(one, Message) else ""
        return tuple(item_of(unit, heading(one.call), unit.total_us, group=group) for unit in units)
    return _explained(total_us(units), parts, source=units[0].time.source)


def item_of(unit: Priced, under: str, time_us: float, *, group: str = "", beside: bool = False) -> Item:
    """The item of a priced call under a heading; `time_us` of its own time counts."""
    return Item(
        heading=under,
        time_us=time_us,
        alone_us=unit.total_us,
        count=unit.count,
        call=unit.call,
        phase=unit.phase,
        source=unit.time.source,
        group=group,
        beside=beside,
    )


def _explained(whole_us: float, parts: Sequence[Priced], source: Source) -> tuple[Item, ...]:
    """Compute as predicted; what is left of the whole as communication, else as parts that no sample covers, else as glue. All share
    the whole's `source`."""
    messages = [part for part in parts if heading(part.call) == TP]
    compute = [item_of(part, heading(part.call), part.total_us) for part in parts if heading(part.call) != TP]
    compute = _guessed(compute) if source != "analytic" else compute
    compute_us, messages_us = sum(item.time_us for item in compute), total_us(messages)
    left_us = max(0.0, whole_us - compute_us)
    if compute_us > whole_us:
        compute = _scaled(compute, whole_us / compute_us)
    if not messages:
        found = _with_rest(compute, Item(heading=OTHER, time_us=left_us, alone_us=left_us))
    else:
        rest = [item_of(part, TP, left_us * part.total_us / messages_us, group=TP) for part in messages]
        found = [*compute, *rest]
    return tuple(replace(item, source=source) for item in found)


def _with_rest(items: Sequence[Item], rest: Item) -> list[Item]:
    """The items and what a sampled whole takes beyond them: it is the time of those that no sample covers, in proportion, since theirs was
    only estimated; without any it is `rest` itself."""
    guessed = [item for item in items if item.guessed]
    guessed_us = sum(item.time_us for item in guessed)
    if not guessed_us:
        return [*items, rest]
    return [*(item for item in items if not item.guessed), *_scaled(guessed, 1 + rest.time_us / guessed_us)]


def _guessed(parts: Sequence[Item]) -> list[Item]:
    """The parts of a sampled whole, with those marked that no sample covers."""
    return [
        replace(part, guessed=True) if part.source == "analytic" and not isinstance(part.call, Collective) else part
        for part in parts
    ]


def _source_of_whole(priced: PricedBlock, prices: Prices) -> Source | None:
    """The source of the sampled layer beyond whose parts a block has glue."""
    return prices.priced([priced.block.whole])[0].time.source if priced.block.whole else None


def _scaled(items: Sequence[Item], factor: float) -> list[Item]:
    """The items with all times changed in proportion: parts that run warm inside their layer take less than alone."""
    return [replace(item, time_us=item.time_us * factor, alone_us=item.alone_us * factor) for item in items]


def _exposed(priced: PricedOverlap, overlapped: OverlappedCommunication) -> Iterator[Item]:
    """Communication by the part that the overlapping work does not hide, shared out by the messages' own times."""
    whole_us = total_us(priced.communication)
    share = priced.exposed_us / whole_us if whole_us else 0.0
    for unit, message in zip(priced.communication, overlapped.communication, strict=True):
        group = message.group if isinstance(message, Message) else ""
        yield item_of(unit, overlapped.heading, share * unit.total_us, group=group, beside=True)


P2P, DP, BUBBLE, OPTIMIZER = "p2p", "dp_exposed", "pp_bubble", "optimizer"
STRAGGLERS, OVERHEAD = "stragglers", "step_overhead"
NOT_COMPUTE = (TP, P2P, DP, BUBBLE, OPTIMIZER, OTHER)


def step_breakdown(
    run: TrainingRun,
    calls: tuple[RankCalls, ...],
    prices: Prices,
    order: Order,
    ranks: tuple[PricedRank, ...],
    step_us: float,
) -> dict[str, float]:
    """µs by heading, the mean over the pipeline ranks; idle time that nothing else explains is the pipeline's bubble."""
    per_rank = []
    ledgers_of = BlockLedgers(prices)
    for of_rank, rank, counts in zip(calls, ranks, action_counts(order), strict=True):
        ledgers = [{DP: rank.exposed_us}, _optimizer_ledger(run, of_rank, rank, prices)]
        for chunk, count in zip(rank.chunks, counts, strict=True):
            for kind, bucket in BUCKETS.items():
                if count[kind]:
                    ledger = ledgers_of.bucket(getattr(chunk, bucket))
                    ledgers.append({name: time_us * count[kind] for name, time_us in ledger.items()})
        per_rank.append(add_up(ledgers))
    mean = {name: time_us / len(ranks) for name, time_us in add_up(per_rank).items()}
    overhead_us = float(run.execution.beside_work_us)
    waited_us = (step_us - overhead_us) * (1 - 1 / stragglers_factor(run))
    beside = {name: time_us for name, time_us in {STRAGGLERS: waited_us, OVERHEAD: overhead_us}.items() if time_us}
    idle_us = step_us - sum(mean.values()) - waited_us - overhead_us
    p2p_us = exposed_p2p_us(order, ranks)
    idle = {P2P: p2p_us, BUBBLE: max(0.0, idle_us - p2p_us)}  # a sum of many times may round to less than none
    return add_up([dict.fromkeys(NOT_COMPUTE, 0.0), mean, beside, idle])


def _optimizer_ledger(run: TrainingRun, calls: RankCalls, rank: PricedRank, prices: Prices) -> dict[str, float]:
    """Whole layers' copies are calls of their own; elsewhere clipping and copies count as the optimizer's."""
    return (
        calls_by_heading(calls.end.optimizer, prices)
        if run.execution.whole_layers
        else {OPTIMIZER: rank.optimizer.median_us}
    )


def exposed_p2p_us(order: Order, ranks: tuple[PricedRank, ...]) -> float:
    """The time by which the step would be shorter if tensors crossed the pipeline's edges at once."""
    times = chunk_times(ranks, order.placement)
    with_sends, without = (simulate(order, each) for each in (times, replace(times, p2p=0.0)))
    return max(0.0, step_time_us(with_sends, ranks) - step_time_us(without, with_windows(ranks, without)))


def calls_by_heading(counted: Iterable[Counted], prices: Prices) -> dict[str, float]:
    """µs by heading; the sum equals the calls' priced total."""
    return by_heading(item for one in counted for item in items_of_call(one, prices))


def by_heading(items: Iterable[Item]) -> dict[str, float]:
    return add_up({item.heading: item.time_us} for item in items)


@dataclass(frozen=True, slots=True)
class BlockLedgers:
    """Itemises priced blocks, each once: the layers of one kind share theirs on all ranks."""

    prices: Prices
    _known: dict[PricedBlock, dict[str, float]] = field(default_factory=dict)

    def bucket(self, bucket: Bucket) -> dict[str, float]:
        """µs by heading; the sum equals the bucket's median."""
        return add_up(
            {name: repeated.count * time_us for name, time_us in self._block(repeated.priced).items()}
            for repeated in bucket.blocks
        )

    def _block(self, priced: PricedBlock) -> dict[str, float]:
        if priced not in self._known:
            self._known[priced] = _itemise_block(priced, self.prices)
        return self._known[priced]


def _itemise_block(priced: PricedBlock, prices: Prices) -> dict[str, float]:
    if priced.block.heading:
        return {priced.block.heading: priced.median_us}
    return by_heading(items_of_block(priced, prices))


def add_up(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Heading-wise sum."""
    return add_terms(*ledgers)
