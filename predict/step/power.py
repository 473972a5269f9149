"""Power of a step: what the board draws while it computes, moves data, communicates and waits."""

from collections.abc import Mapping
from dataclasses import dataclass

from predict.schedules.engine.order import Order
from predict.step.priced_rank import PricedRank, counted_blocks
from sampling.hardware.cluster import Gpu
from sampling.hardware.hardware_file import Activity

POWER_WIDTH = 0.12
"""Half-width in log of a board's mean power at 90 %: the spread of the shares (POWER_SHARES) that the order of published ones allows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoardPower:
    """The mean power of a board over a step, by what it does."""

    shares: Mapping[Activity, float]
    """Shares of the step's time, the mean over the ranks."""
    watts: Mapping[Activity, float]

    @property
    def mean_w(self) -> float:
        return sum(share * self.watts[activity] for activity, share in self.shares.items())


def board_power(gpu: Gpu, ranks: tuple[PricedRank, ...], order: Order, step_us: float) -> BoardPower | None:
    """The power of a step; None where the hardware file states none. What the schedule, stragglers and the host leave is waiting."""
    if gpu.power_w is None:
        return None
    times: dict[Activity, float] = {"products": 0.0, "memory": 0.0, "communication": 0.0}
    for priced, count in counted_blocks(ranks, order, with_sends=ranks[0].blocks_on_sends):
        for activity in times:
            times[activity] += count * max(0.0, priced.by_activity_us[activity])
    shares = {activity: time_us / len(ranks) / step_us for activity, time_us in times.items()}
    shares["waiting"] = max(0.0, 1 - sum(shares.values()))
    return BoardPower(shares=shares, watts={activity: gpu.watts(activity) for activity in (*shares, "idle")})
