"""A pipeline rank with prices: what its chunks' forwards, backwards and sends cost, its reduction and its step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.schedules.timeline import Timeline
from predict.step.costing import Priced, PriceList
from predict.workload.chunks import ChunkCalls
from predict.workload.decompose import RankCalls
from sampling.call import Counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Priced calls that run one after the other, and their sum."""

    units: tuple[Priced, ...]
    median_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedChunk:
    """Of one microbatch. The halves of the backward are empty where the schedule does not part it."""

    forward: Bucket
    backward: Bucket
    backward_input: Bucket
    backward_weight: Bucket
    send: Bucket


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedRank:
    """`gradients` (over replicas and copies) and `step` once a step."""

    chunks: tuple[PricedChunk, ...]
    gradients: Bucket
    step: Bucket

    @property
    def after_us(self) -> float:
        """What follows the rank's last pipeline action."""
        return self.gradients.median_us + self.step.median_us


def price_ranks(calls: Iterable[RankCalls], prices: PriceList) -> tuple[PricedRank, ...]:
    """Price every rank, asking for all calls at once."""
    ranks = tuple(calls)
    prices.learn(counted for rank in ranks for counted in rank.all_calls())
    return tuple(
        PricedRank(
            chunks=tuple(_chunk(chunk, prices) for chunk in rank.chunks),
            gradients=_joined(_not_negative(_bucket(rank.gradients, prices)), _bucket(rank.copies, prices)),
            step=_bucket(rank.step, prices),
        )
        for rank in ranks
    )


def step_time_us(timeline: Timeline, ranks: tuple[PricedRank, ...]) -> float:
    """When the last rank is done: its pipeline, then its gradients and its optimizer."""
    return max(float(end[-1]) + rank.after_us for end, rank in zip(timeline.end, ranks, strict=True))


def _chunk(chunk: ChunkCalls, prices: PriceList) -> PricedChunk:
    return PricedChunk(
        forward=_bucket(chunk.forward, prices),
        backward=_bucket(chunk.backward, prices),
        backward_input=_bucket(chunk.backward_input, prices),
        backward_weight=_not_negative(_bucket(chunk.backward_weight, prices)),
        send=_bucket(chunk.send, prices),
    )


def _bucket(counted: Iterable[Counted], prices: PriceList) -> Bucket:
    units = prices.priced(counted)
    return Bucket(units=units, median_us=sum(unit.total_us for unit in units))


def _joined(one: Bucket, other: Bucket) -> Bucket:
    return Bucket(units=one.units + other.units, median_us=one.median_us + other.median_us)


def _not_negative(bucket: Bucket) -> Bucket:
    """A difference of measurements; noise must not make it a gain."""
    return bucket if bucket.median_us >= 0 else Bucket(units=(), median_us=0.0)
