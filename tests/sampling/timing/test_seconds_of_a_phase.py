"""Seconds that timing takes, beside the timer on a device whose clock passes only while something runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sampling.session.rehearsal import FakeClock, FakeDevice, NoWork
from sampling.timing.device_states import device_phase_s, time_states, warm_up
from sampling.timing.launch_time import Captures
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import TimerSettings, unlimited
from sampling.torch_work.collectives.process_groups import LoneRank


def phase_of(clock: FakeClock, run_s: float, left_s: Callable[[], float] = unlimited) -> TimedPhase:
    work = NoWork()
    return TimedPhase(
        kind="gemm",
        workload=work,
        as_built=work,
        phase="forward",
        timer=FakeDevice(clock, 1e6 * run_s, 10.0, captured=True),
        ranks=LoneRank(),
        together=False,
        done_per_run=1,
        settings=TimerSettings(),
        left_s=left_s,
    )


@pytest.mark.parametrize("run_s", [1e-4, 1e-2, 0.2])
@pytest.mark.parametrize("sustained", [False, True])
def test_a_device_takes_about_the_seconds_that_its_states_cost(run_s: float, sustained: bool) -> None:
    clock = FakeClock()
    time_states(phase_of(clock, run_s), Captures(print), sustained=sustained)
    assert device_phase_s(TimerSettings(), run_s, sustained=sustained) == pytest.approx(clock(), rel=0.25)


def test_long_runs_that_do_not_fit_before_the_deadline_are_not_begun() -> None:
    clock, deadline_s = FakeClock(), 8.0
    phase = phase_of(clock, 0.2, lambda: deadline_s - clock())
    assert time_states(phase, Captures(print), sustained=False) == []
    assert clock() < deadline_s


def test_a_warm_up_ends_with_the_time_that_is_left() -> None:
    clock = FakeClock()
    assert warm_up(phase_of(clock, 30.0, lambda: 10.0 - clock())) == 30e6
    assert clock() == pytest.approx(30.0, rel=0.01)
