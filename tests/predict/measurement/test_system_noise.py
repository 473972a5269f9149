"""Which processes and steps make a measurement noisy."""

import pytest

from predict.measurement.system_noise import StepUsage, Usage, others_shares, quiet_steps, usage_of, waited_share
from sampling.hardware.readings import busy_seconds

QUIET = StepUsage(wall_s=1.0, machine_s=1.9, ranks_s=1.85)


NOISY = StepUsage(wall_s=1.0, machine_s=2.0, ranks_s=1.5)


def test_a_step_waits_for_the_thread_of_a_rank_that_waited_longest() -> None:
    ranks = [
        {"wall_s": [1.0, 1.0], "machine_s": [2.0, 2.0], "own_s": [0.7, 0.7], "waited_s": waited}
        for waited in ([0.1, 0.0], [0.2, 0.3])
    ]
    assert waited_share(usage_of(ranks)) == pytest.approx(0.25)
    before = Usage(machine_s=1.0, own_s=1.0, waiting_s={"1": 1.0})
    after = Usage(machine_s=2.0, own_s=1.5, waiting_s={"1": 1.5, "2": 0.2})
    assert after.since(before).waited_s == pytest.approx(0.5)
    before = Usage.now()
    assert Usage.now().since(before).waited_s >= 0.0


def test_waiting_for_the_threads_of_the_same_run_is_not_the_work_of_others() -> None:
    alone = StepUsage(wall_s=1.0, machine_s=2.0, ranks_s=2.0, waited_s=0.3)
    assert waited_share([alone]) == 0.0
    beside_little = StepUsage(wall_s=1.0, machine_s=2.0, ranks_s=1.9, waited_s=0.3)
    assert waited_share([beside_little]) == pytest.approx(0.1)


def test_busy_time_leaves_out_idle_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    assert busy_seconds("cpu  1 2 4 8000 9000 16 32 64 500 600\ncpu0 0 0") == pytest.approx(1.19)


def test_a_long_step_is_judged_alone() -> None:
    shares = others_shares([QUIET, NOISY, QUIET], cores=2, tick_s=0.01)
    assert shares == pytest.approx([0.015, 0.24, 0.015])


def test_short_steps_are_judged_with_their_neighbours() -> None:
    quiet = StepUsage(wall_s=0.1, machine_s=0.2, ranks_s=0.2)
    burst = StepUsage(wall_s=0.1, machine_s=0.35, ranks_s=0.2)
    shares = others_shares([quiet, quiet, burst, quiet, quiet, quiet], cores=2, tick_s=0.01)
    expected = (0.15 - 0.02) / (2 * 0.3)
    assert shares == pytest.approx([expected, expected, expected, expected, 0, 0])


def test_no_share_is_below_zero() -> None:
    assert others_shares([StepUsage(wall_s=1.0, machine_s=1.0, ranks_s=1.1)], cores=2, tick_s=0.01) == [0.0]


def test_noisy_steps_are_left_out_unless_most_are() -> None:
    assert quiet_steps([0.0, 0.5, 0.02, 0.11]) == ([0, 2], False)
    assert quiet_steps([0.0, 0.5, 0.5]) == ([0, 1, 2], True)
