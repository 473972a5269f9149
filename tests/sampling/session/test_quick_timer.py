"""The quick timer on a fake device whose runs are noisy: a fraction of the time, nearly the same medians."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from sampling.session.rehearsal import FakeClock, FakeDevice, NoWork
from sampling.timing.device_states import time_states
from sampling.timing.launch_time import Captures
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import FULL, QUICK, TimerSettings, Timing
from sampling.torch_work.collectives.process_groups import LoneRank

RUN_US, NOISE = 400.0, 0.03


@dataclass(slots=True)
class NoisyDevice(FakeDevice):
    chance: random.Random = field(default_factory=lambda: random.Random(3))

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None]) -> float:
        return FakeDevice.isolated(self, run, lead=lead) * self.chance.lognormvariate(0, NOISE)

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        queued, noise = FakeDevice.queued(self, run), self.chance.lognormvariate(0, NOISE)
        return lambda: queued() * noise


def timed(settings: TimerSettings, seed: int) -> tuple[list[Timing], float]:
    clock = FakeClock()
    device = NoisyDevice(clock, RUN_US, 50.0, True, chance=random.Random(seed))
    work = NoWork()
    phase = TimedPhase(
        kind="gemm",
        workload=work,
        as_built=work,
        phase="forward",
        timer=device,
        ranks=LoneRank(),
        together=False,
        done_per_run=1,
        settings=settings,
    )
    return time_states(phase, Captures(print), sustained=True), clock()


def test_quick_medians_are_those_of_full_within_two_percent_in_a_quarter_of_the_time() -> None:
    ratios, quick_s, full_s = [], 0.0, 0.0
    for seed in range(20):
        (quick, took), (full, took_in_full) = timed(QUICK, seed), timed(FULL, seed + 100)
        ratios += [of_quick.median_us / of_full.median_us for of_quick, of_full in zip(quick, full, strict=True)]
        quick_s, full_s = quick_s + took, full_s + took_in_full
    assert abs(statistics.median(ratios) - 1) < 0.005
    assert statistics.quantiles(ratios, n=10)[0] > 0.98
    assert statistics.quantiles(ratios, n=10)[-1] < 1.02
    assert quick_s < full_s / 4
