"""The work of a step, call by call: the items of every block that a pipeline rank runs, and how often it does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from predict.prices.price_list import Prices
from predict.step.breakdown import DP, P2P, Item, items_of_block, items_of_call
from predict.step.prediction import Prediction
from predict.step.priced_block import Bucket, PricedBlock, total_us
from predict.step.priced_rank import BUCKETS, PricedRank, action_counts
from predict.workload.decompose import RankCalls
from predict.workload.layer import ACCUMULATION, RECOMPUTE
from sampling.call import Counted
from sampling.collectives.kinds import Collective
from sampling.operators.streaming import Stream


@dataclass(frozen=True, kw_only=True, slots=True)
class StepItem:
    """An item of a block, and how often a pipeline rank runs the block in a step, on the mean over the ranks."""

    item: Item
    runs: float
    again: bool = False
    """Whether recomputation repeats it."""
    at_end: bool = False
    """Whether it runs once after the last microbatch."""

    @property
    def time_us(self) -> float:
        return self.runs * self.item.time_us

    @property
    def alone_us(self) -> float:
        return self.runs * self.item.alone_us

    @property
    def calls(self) -> float:
        """Times that the call runs in a step."""
        return self.runs * self.item.count

    @property
    def is_message(self) -> bool:
        """Whether it is communication, a copy that goes with it, or a pipeline action with its send."""
        return self.item.beside or self.item.heading == P2P or isinstance(self.item.call, Collective)


def step_items(prediction: Prediction, of_ranks: Collection[int] | None = None) -> tuple[StepItem, ...]:
    """The items of a step on the mean of the pipeline ranks `of_ranks`, by default all; their times add up to the time in which such a
    rank does not wait, and what sends add to the step."""
    chosen = tuple(range(len(prediction.ranks)) if of_ranks is None else of_ranks)
    share = 1 / len(chosen)
    found: list[StepItem] = []
    for priced, (runs, backward) in _runs_of_blocks(prediction, chosen).items():
        found += _of_block(priced, runs * share, backward=backward, prices=prediction.prices)
    for place in chosen:
        found += _end_of_step(prediction.ranks[place], prediction.calls[place], share, prediction.prices)
    return (*found, *_sends(prediction, chosen))


def _runs_of_blocks(prediction: Prediction, chosen: Collection[int]) -> dict[PricedBlock, tuple[float, bool]]:
    """The times that the chosen pipeline ranks together run each block, and whether in a backward."""
    found: dict[PricedBlock, tuple[float, bool]] = {}
    all_counts = action_counts(prediction.timeline.order)
    for rank, counts in ((prediction.ranks[place], all_counts[place]) for place in chosen):
        for chunk, count in zip(rank.chunks, counts, strict=True):
            for kind, bucket in BUCKETS.items():
                for repeated in getattr(chunk, bucket).blocks if count[kind] else ():
                    before, _ = found.get(repeated.priced, (0.0, False))
                    found[repeated.priced] = (before + count[kind] * repeated.count, kind != "F")
    return found


def _of_block(priced: PricedBlock, runs: float, *, backward: bool, prices: Prices) -> Iterator[StepItem]:
    whole = priced.block.heading
    for item in items_of_block(priced, prices):
        named = replace(item, heading=whole) if whole == ACCUMULATION else item
        yield StepItem(item=named, runs=runs, again=whole == RECOMPUTE or (backward and _repeats(item)))


def _repeats(item: Item) -> bool:
    """Whether an item of a backward is the forward of an operator, which selective recomputation repeats there."""
    has_backward = item.call is not None and "backward" in item.call.PHASES and not isinstance(item.call, Stream)
    return has_backward and item.phase == "forward"


def _end_of_step(rank: PricedRank, calls: RankCalls, share: float, prices: Prices) -> Iterator[StepItem]:
    """Gradients over the replicas and updated weights back to them, each by what it adds to the step; and the optimizer."""
    found = [
        *_blocking(calls.end.blocking_reduction, prices),
        *_items(calls.end.shared_weights_reduction, prices),
        *_by_exposed(rank.gradient_reduction, rank.exposed_reduction_us, prices),
        *_by_exposed(rank.parameter_all_gather, rank.exposed_all_gather_us, prices),
    ]
    for item in found:
        yield StepItem(item=replace(item, heading=DP, beside=True), runs=share, at_end=True)
    for item in _items(calls.end.optimizer, prices):
        yield StepItem(item=item, runs=share, at_end=True)


def _items(calls: Iterable[Counted], prices: Prices) -> Iterator[Item]:
    for one in calls:
        yield from items_of_call(one, prices)


def _blocking(calls: tuple[Counted, ...], prices: Prices) -> Iterator[Item]:
    """The reduction that was measured together with a backward: a difference of two times, which stands under its collective."""
    if all(isinstance(one.call, Collective) for one in calls):
        yield from _items(calls, prices)
        return
    units = prices.priced(calls)
    added_us = max(0.0, total_us(units))
    parts = [part for one in calls for part in prices.parts(one) if isinstance(part.call, Collective) and one.count > 0]
    alone_us = total_us(parts)
    for part in parts:
        share = part.total_us / alone_us
        yield Item(
            heading=DP,
            time_us=added_us * share,
            alone_us=part.total_us,
            count=part.count,
            call=part.call,
            phase=part.phase,
            source=units[0].time.source,
            group="dp",
        )


def _by_exposed(bucket: Bucket, exposed_us: float, prices: Prices) -> Iterator[Item]:
    """The items of a bucket of which `exposed_us` counts."""
    share = exposed_us / bucket.median_us if bucket.median_us else 0.0
    for repeated in bucket.blocks:
        for item in items_of_block(repeated.priced, prices):
            yield replace(item, time_us=item.time_us * share)


def _sends(prediction: Prediction, chosen: Collection[int]) -> Iterator[StepItem]:
    """The sends between pipeline ranks, forward and back, by what they add to the step all together."""
    all_counts = action_counts(prediction.timeline.order)
    found = [
        StepItem(item=item, runs=2 * count["F"] / len(chosen))
        for place in chosen
        for chunk, count in zip(prediction.ranks[place].chunks, all_counts[place], strict=True)
        for repeated in chunk.send.blocks
        for item in items_of_block(repeated.priced, prediction.prices)
    ]
    alone_us = sum(each.alone_us for each in found)
    added_us = prediction.exposed_p2p_us
    for each in found:
        exposed_us = added_us * each.item.alone_us / alone_us if alone_us else 0.0
        yield replace(each, item=replace(each.item, heading=P2P, time_us=exposed_us, beside=True))
