"""A pipeline stage with prices: what its forward, backward, reduction, step and hand-over cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.step.costing import Priced, PriceList
from predict.workload.decompose import StageCalls
from sampling.call import Counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Priced calls that run one after the other, and their sum."""

    units: tuple[Priced, ...]
    median_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedStage:
    """`forward`, `backward` and `send` of one microbatch; `gradients` and `step` once a step."""

    forward: Bucket
    backward: Bucket
    gradients: Bucket
    step: Bucket
    send: Bucket

    @property
    def after_us(self) -> float:
        """What follows the rank's last pipeline action."""
        return self.gradients.median_us + self.step.median_us


def price_stages(calls: Iterable[StageCalls], prices: PriceList) -> tuple[PricedStage, ...]:
    """Price every stage, asking for all calls at once."""
    stages = tuple(calls)
    prices.learn(counted for stage in stages for counted in stage.all_calls())
    return tuple(
        PricedStage(
            forward=_bucket(stage.forward, prices),
            backward=_bucket(stage.backward, prices),
            gradients=_not_negative(_bucket(stage.gradients, prices)),
            step=_bucket(stage.step, prices),
            send=_bucket(stage.send, prices),
        )
        for stage in stages
    )


def _bucket(counted: Iterable[Counted], prices: PriceList) -> Bucket:
    units = prices.priced(counted)
    return Bucket(units=units, median_us=sum(unit.total_us for unit in units))


def _not_negative(bucket: Bucket) -> Bucket:
    """Reducing gradients is a difference of two measurements; noise must not make it a gain."""
    return bucket if bucket.median_us >= 0 else Bucket(units=(), median_us=0.0)
