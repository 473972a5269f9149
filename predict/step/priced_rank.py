"""Priced ranks: the times of a pipeline rank's chunks, of its gradient reduction and parameter gather, and of its optimizer."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predict.prices.kernels.memory_bound import Time
from predict.prices.price_list import Prices
from predict.prices.published_constants import CONSTANTS
from predict.run.training_run import TrainingRun
from predict.schedules.engine.costs import ChunkTimes
from predict.schedules.engine.order import CHUNK, KIND, KINDS, ActionKind, Order, Placement, Rows
from predict.schedules.engine.program import KEPT
from predict.schedules.engine.timing import Timeline
from predict.step.priced_block import EMPTY, BlockPrices, Bucket, PricedBlock, block_prices, exposed_us, least
from predict.workload.chunks import ChunkCalls
from predict.workload.decompose import RankCalls, distinct_calls
from regressors.features.arrays import Floats, Indices


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedChunk:
    """One microbatch of a chunk. The halves of the backward are empty where the schedule does not split it."""

    forward: Bucket
    backward: Bucket
    backward_input: Bucket
    backward_weight: Bucket
    send: Bucket


Windows = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class PricedRank:
    """The calls of a rank with prices; the gradient reduction and the parameter gather count by their exposed time.

    The shares are those of the last backward and of the first forward on the rank behind which they may hide.
    """

    chunks: tuple[PricedChunk, ...]
    blocking_reduction: Bucket
    gradient_reduction: Bucket
    parameter_all_gather: Bucket
    reduction_share: float
    all_gather_share: float
    optimizer: Bucket
    exposed_bucket_share: float = 0.0
    """Share of both in the bucket that nothing hides."""
    contention_slowdown: float = CONSTANTS["REPLICA_CONTENTION"].value
    exposed_time: float = 1.0
    """Factor on what is exposed of overlapped communication, from a calibration."""
    blocks_on_sends: bool = False
    """The rank waits until what it sends has arrived."""
    windows: Windows = ((1.0, math.inf),)
    """The time that each share of the gradient reduction has to hide in (see `windows_of`)."""

    @property
    def forward_us(self) -> float:
        """Forward of one microbatch through all chunks."""
        return sum(chunk.forward.median_us for chunk in self.chunks)

    @cached_property
    def exposed_reduction_us(self) -> float:
        reduction_us = self.gradient_reduction.median_us
        return self.exposed_reduction_of(reduction_us) if reduction_us else 0.0

    def exposed_reduction_of(self, reduction_us: Time) -> Time:
        """The part of a gradient reduction of `reduction_us` that does not fit its windows."""
        return self.exposed_reduction_in(self.windows, reduction_us)

    def exposed_reduction_in(self, windows: Iterable[tuple[float, Any]], reduction_us: Time) -> Time:
        """The part that does not fit these windows; each may be a column of many ranks' windows."""
        if not self.reduction_share:
            return reduction_us
        hidden_us = reduction_us * (1 - self.exposed_bucket_share)
        for share, window_us in windows:
            late_us = reduction_us * share - window_us * self.reduction_share
            hidden_us = least(hidden_us, reduction_us - late_us)
        return self._exposed(reduction_us, hidden_us)

    @cached_property
    def exposed_all_gather_us(self) -> float:
        all_gather_us = self.parameter_all_gather.median_us
        return self.exposed_all_gather_of(all_gather_us) if all_gather_us else 0.0

    def exposed_all_gather_of(self, all_gather_us: Time) -> Time:
        """The part of a parameter gather of `all_gather_us` that is longer than the first forward, and its first bucket."""
        if not self.all_gather_share:
            return all_gather_us
        hidden_us = all_gather_us * (1 - self.exposed_bucket_share)
        forward_us = least(hidden_us, all_gather_us * 0 + self.forward_us * self.all_gather_share)
        return self._exposed(all_gather_us, forward_us)

    def _exposed(self, communication_us: Time, hidden_us: Time) -> Time:
        return exposed_us(
            communication_us,
            hidden_us,
            contention_slowdown=self.contention_slowdown,
            exposed_time=self.exposed_time,
        )

    @property
    def exposed_us(self) -> float:
        """Time that communication between replicas adds to the step."""
        return self.blocking_reduction.median_us + self.exposed_reduction_us + self.exposed_all_gather_us

    @property
    def after_us(self) -> float:
        """Time after the rank's last pipeline action."""
        return self.exposed_us + self.optimizer.median_us


def windows_of(timeline: Timeline) -> tuple[Windows, ...]:
    """Windows by rank and chunk: the share of the rank's gradients that are ready no sooner than the chunk's, and the time in
    µs from the start of the chunk's last backward to the rank's end. Gradients become ready in the order of the last backwards."""
    of_ranks = []
    # the last backwards come after the steady state, and their windows are the same in the shorter form
    timed = timeline.core
    for backwards, start, end in zip(_last_backwards(timed.order), timed.start, timed.rank_ends.tolist(), strict=True):
        last = sorted(start[backwards].tolist())
        of_ranks.append(tuple((1 - place / len(last), end - time) for place, time in enumerate(last)))
    return tuple(of_ranks)


@lru_cache(maxsize=KEPT)
def _last_backwards(order: Order) -> list[NDArray[np.intp]]:
    """The place of each chunk's last backward by rank, or half of one."""
    of_ranks = []
    for row in order.rows:
        last = np.zeros(order.chunks, dtype=np.intp)
        backwards = np.flatnonzero(row[:, KIND] != KINDS.index("F"))
        last[row[backwards, CHUNK]] = backwards  # of a place that is given several times, numpy keeps the last
        of_ranks.append(last)
    return of_ranks


def with_windows(ranks: tuple[PricedRank, ...], timeline: Timeline) -> tuple[PricedRank, ...]:
    """The ranks with the windows that a timeline leaves for their gradient reductions; without one, ranks that are alike stay one
    object, whose work is done once."""
    if not any(rank.gradient_reduction.blocks and rank.reduction_share for rank in ranks):
        return ranks
    return tuple(replace(rank, windows=of) for rank, of in zip(ranks, windows_of(timeline), strict=True))


def price(run: TrainingRun, calls: Iterable[RankCalls], prices: Prices) -> tuple[PricedRank, ...]:
    """Price every rank, asking for all calls at once."""
    ranks = tuple(calls)
    blocks = block_prices(run, prices)
    of_chunk = partial(_chunk, blocks)
    prices.learn(distinct_calls(ranks, blocks.knows))
    distinct = {id(rank): rank for rank in ranks}
    of_chunks = {id(chunk): chunk for rank in distinct.values() for chunk in rank.chunks}
    chunks = {key: blocks.once(chunk, of_chunk) for key, chunk in of_chunks.items()}
    priced = {key: _rank(run, rank, blocks, chunks) for key, rank in distinct.items()}
    return tuple(priced[id(rank)] for rank in ranks)


BUCKETS: dict[ActionKind, str] = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}
"""Kind of action → its bucket of a PricedChunk."""


def distinct_chunks(ranks: Sequence[PricedRank]) -> tuple[list[PricedChunk], NDArray[np.intp]]:
    """The chunks of all ranks, each once, and which of them a rank holds, shape (ranks, chunks)."""
    distinct = {id(rank): rank for rank in ranks}
    found = {id(chunk): chunk for rank in distinct.values() for chunk in rank.chunks}
    places = {key: place for place, key in enumerate(found)}
    of_ranks = {key: [places[id(chunk)] for chunk in rank.chunks] for key, rank in distinct.items()}
    return list(found.values()), np.array([of_ranks[id(rank)] for rank in ranks])


@lru_cache(maxsize=KEPT)
def action_counts(order: Order) -> list[list[dict[ActionKind, int]]]:
    """The number of actions of each kind in an order, by rank and chunk."""
    return [[dict(zip(KINDS, of_chunk, strict=True)) for of_chunk in of_rank] for of_rank in counts_of(order).tolist()]


@lru_cache(maxsize=KEPT)
def counts_of(order: Order) -> NDArray[np.intp]:
    """The number of actions by rank, chunk and kind, in the order of KINDS."""
    form = order.folded
    if form is None:
        return np.array([_counts(row, order.chunks) for row in order.rows])
    copies = zip(form.short.rows, form.ends, form.lengths, strict=True)
    return np.array(
        [
            _counts(row, order.chunks) + form.more * _counts(row[end - length : end], order.chunks)
            for row, end, length in copies
        ]
    )


def _counts(row: Rows, chunks: int) -> NDArray[np.intp]:
    return np.bincount(row[:, CHUNK] * len(KINDS) + row[:, KIND], minlength=chunks * len(KINDS)).reshape(chunks, -1)


def _rank(run: TrainingRun, rank: RankCalls, blocks: BlockPrices, chunks: Mapping[int, PricedChunk]) -> PricedRank:
    execution, sampled = run.execution, blocks.prices.sampled_contention
    return PricedRank(
        chunks=tuple(chunks[id(chunk)] for chunk in rank.chunks),
        blocking_reduction=_not_negative(blocks.of_calls(rank.end.blocking_reduction))
        + blocks.of_calls(rank.end.shared_weights_reduction),
        gradient_reduction=blocks.of_calls(rank.end.gradient_reduction),
        parameter_all_gather=blocks.of_calls(rank.end.parameter_all_gather),
        reduction_share=float(execution.overlap_gradients),
        all_gather_share=float(execution.overlap_parameters),
        optimizer=blocks.of_calls(rank.end.optimizer) + blocks.bucket(rank.end.on_host),
        exposed_bucket_share=rank.end.exposed_bucket_share,
        contention_slowdown=CONSTANTS["REPLICA_CONTENTION"].value if sampled is None else sampled,
        exposed_time=execution.exposed_time,
        blocks_on_sends=not execution.overlap_p2p,
    )


def step_time_us(timeline: Timeline, ranks: tuple[PricedRank, ...]) -> float:
    """End of the last rank in µs: its pipeline, then its gradient reduction and its optimizer. `ranks` have the timeline's windows."""
    after_us = {key: rank.after_us for key, rank in {id(rank): rank for rank in ranks}.items()}
    ends_us: list[float] = timeline.rank_ends.tolist()
    return max(end_us + after_us[id(rank)] for end_us, rank in zip(ends_us, ranks, strict=True))


def _chunk(blocks: BlockPrices, chunk: ChunkCalls) -> PricedChunk:
    return PricedChunk(
        forward=blocks.bucket(chunk.forward),
        backward=blocks.bucket(chunk.backward),
        backward_input=blocks.bucket(chunk.backward_input),
        backward_weight=_not_negative(blocks.bucket(chunk.backward_weight)),
        send=blocks.of_calls(chunk.send),
    )


def _not_negative(bucket: Bucket) -> Bucket:
    """The bucket, or an empty one: a difference of measurements must not become a gain by noise."""
    return bucket if bucket.median_us >= 0 else EMPTY


# Stragglers: the cost of waiting for the slowest of many ranks.

Waiting = TypeVar("Waiting", float, NDArray[np.float64])


def stragglers_factor(run: TrainingRun) -> float:
    """Step time relative to equally fast ranks."""
    if not run.execution.stragglers:
        return 1.0
    return float(waiting_factor(run.execution.waiting_time, run.cluster.world_size))


def waiting_factor(waiting_time: Waiting, ranks: int) -> Waiting:
    """`stragglers_factor` of runs that wait, from the factors `execution.waiting_time` on what is stated."""
    return 1.0 + waiting_time * CONSTANTS["STRAGGLERS"].value * math.log2(ranks)


# Chunk times: the schedule engine's input, made of priced chunks; one set of times, or many at once for the interval.

Value = Callable[[Sequence[Bucket]], Floats]
"""Times of buckets in µs, shape (buckets, sets)."""


def chunk_times(ranks: tuple[PricedRank, ...], placement: Placement, value: Value | None = None) -> ChunkTimes:
    """Times by rank and chunk, and of the send over each edge; the medians, or the sets that `value` gives, on a leading axis."""
    chunks, held = distinct_chunks(ranks)
    of_chunks = (value or _medians)(buckets_of(chunks)).reshape(5, len(chunks), -1).transpose(0, 2, 1)
    if not value:
        of_chunks = of_chunks[:, 0]
    forward, backward, backward_input, backward_weight = of_chunks[:4][..., held]
    return ChunkTimes(
        forward=forward,
        backward=backward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        p2p=_edges(of_chunks[4], held, placement),
        blocking=ranks[0].blocks_on_sends,
    )


def buckets_of(chunks: Sequence[PricedChunk]) -> list[Bucket]:
    """The buckets of chunks, one kind after the other."""
    return [
        *(chunk.forward for chunk in chunks),
        *(chunk.backward for chunk in chunks),
        *(chunk.backward_input for chunk in chunks),
        *(chunk.backward_weight for chunk in chunks),
        *(chunk.send for chunk in chunks),
    ]


def _medians(buckets: Sequence[Bucket]) -> Floats:
    return np.array([bucket.median_us for bucket in buckets])


def _edges(sends: Floats, held: Indices, placement: Placement) -> Floats:
    """Times of the sends by edge, after any axis of sets; where two chains share an edge, the slower one. `sends` are by distinct
    chunk on the last axis."""
    by_chain = [sends[..., held[rank, chunk]] for rank, chunk in _senders(placement)]
    edges: Floats = by_chain[0] if len(by_chain) == 1 else np.max(by_chain, axis=0)
    return edges


@lru_cache(maxsize=KEPT)
def _senders(placement: Placement) -> list[Indices]:
    """Ranks and chunks of all stages but the last, by chain, shape (2, stages − 1)."""
    holders = placement.holders()
    return [
        np.array([holders[chain, stage] for stage in range(placement.depth - 1)], dtype=np.intp).reshape(-1, 2).T
        for chain in range(placement.chain_count)
    ]


# The blocks of a whole step.


def counted_blocks(
    ranks: tuple[PricedRank, ...], order: Order, *, with_sends: bool = True
) -> Iterator[tuple[PricedBlock, float]]:
    """The priced blocks of a step, and how often each runs on all ranks; what overlaps with compute by its exposed share."""
    times: dict[Bucket, float] = defaultdict(float)
    alike = Counter(map(id, ranks))
    for rank in {id(rank): rank for rank in ranks}.values():
        count_of_rank = alike[id(rank)]
        times[rank.blocking_reduction] += count_of_rank
        times[rank.optimizer] += count_of_rank
        for bucket, of_bucket_us in (
            (rank.gradient_reduction, rank.exposed_reduction_us),
            (rank.parameter_all_gather, rank.exposed_all_gather_us),
        ):
            if bucket.median_us:
                times[bucket] += count_of_rank * of_bucket_us / bucket.median_us
    for chunk, counts in _runs_of_chunks(ranks, order):
        for name, count in zip(BUCKETS.values(), counts, strict=True):
            times[getattr(chunk, name)] += count
        if with_sends:
            times[chunk.send] += 2 * counts[KINDS.index("F")]
    for bucket, count_of_bucket in times.items():
        for repeated in bucket.blocks:
            yield repeated.priced, count_of_bucket * repeated.count


def _runs_of_chunks(ranks: tuple[PricedRank, ...], order: Order) -> Iterator[tuple[PricedChunk, list[int]]]:
    """The number of actions of each kind on all ranks, by distinct chunk."""
    chunks, held = distinct_chunks(ranks)
    runs = np.zeros((len(chunks), len(KINDS)), dtype=np.intp)
    np.add.at(runs, held, counts_of(order))
    yield from zip(chunks, runs.tolist(), strict=True)
