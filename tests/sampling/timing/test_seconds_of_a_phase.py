"""Seconds that timing takes, beside the timer on a device whose clock passes only while something runs."""

from __future__ import annotations

import pytest

from sampling.gpu_session.rehearsal import FakeClock, FakeDevice, NoWork
from sampling.timing.device_states import device_phase_s, time_states
from sampling.timing.launch_time import Captures
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import TimerSettings
from sampling.torch_work.collectives.agreement import LoneRank


@pytest.mark.parametrize("run_s", [1e-4, 1e-2, 0.2])
@pytest.mark.parametrize("sustained", [False, True])
def test_a_device_takes_about_the_seconds_that_its_states_cost(run_s: float, sustained: bool) -> None:
    clock, work, settings = FakeClock(), NoWork(), TimerSettings()
    phase = TimedPhase(
        kind="gemm",
        workload=work,
        as_built=work,
        phase="forward",
        timer=FakeDevice(clock, 1e6 * run_s, 10.0, captured=True),
        ranks=LoneRank(),
        together=False,
        done_per_run=1,
        settings=settings,
    )
    time_states(phase, Captures(print), sustained=sustained)
    assert device_phase_s(settings, run_s, sustained=sustained) == pytest.approx(clock(), rel=0.25)
