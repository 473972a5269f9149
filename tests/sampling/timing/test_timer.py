"""The timer on workloads whose times are known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sampling.call import Phase
from sampling.hardware.cluster import Cluster
from sampling.hardware.readings import CpuClock, load_of_others
from sampling.operators.gemm import Gemm
from sampling.timing.row_checks import quarantine_reason
from sampling.timing.timer import TimerSettings, Timing, quiet_repeats, time_phase
from sampling.torch_work.collectives.process_groups import LoneRank

SETTINGS = TimerSettings(warmup_repeats=2, least_repeats=5, most_repeats=11, seconds=1.0, attempts=1, most_batches=3)


class Scripted:
    """Counts what it is asked to do; its times come from the stopwatch."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def prepare(self, phase: Phase) -> None:
        self.log.append("prepare")

    def run(self, phase: Phase) -> None:
        self.log.append("run")


def stopwatch_of(times_us: list[float]):  # type: ignore[no-untyped-def]
    left = iter(times_us)

    def stopwatch(run):  # type: ignore[no-untyped-def]
        run()
        return next(left)

    return stopwatch


def timed(times_us: list[float], **changes: object) -> tuple[Timing, Scripted]:
    workload = Scripted()
    arguments = {"ranks": LoneRank(), "together": False, "done_per_run": 1, "settings": SETTINGS, **changes}
    timing = time_phase(workload, "forward", stopwatch=stopwatch_of(times_us), **arguments)  # type: ignore[arg-type]
    return timing, workload


def test_warm_up_repeats_do_not_count_and_every_run_is_prepared() -> None:
    timing, workload = timed([1e6, 1e6, *[10.0] * 11])
    assert timing.median_us == timing.low_us == timing.high_us == 10.0
    assert workload.log == ["prepare", "run"] * (2 + timing.repeats)


def test_slow_calls_are_repeated_less_often_but_never_less_than_the_least() -> None:
    quick, _ = timed([10.0] * 13)
    slow, _ = timed([900_000.0] * 13)
    assert (quick.repeats, slow.repeats) == (11, 5)


def test_a_run_that_does_the_call_several_times_is_divided() -> None:
    timing, _ = timed([80.0] * 13, done_per_run=8)
    assert timing.median_us == 10.0


def test_an_uncertain_median_is_given_more_repeats() -> None:
    steady, _ = timed([10.0] * 40)
    unsteady, _ = timed([10.0, 10.0, *[5.0, 15.0, 10.0, 20.0] * 10])
    assert steady.repeats == 11 < 2 * steady.repeats < unsteady.repeats
    assert unsteady.median_error > steady.median_error == 0


class Clock:
    """A machine's clock, and a run that takes `run_s` of it."""

    def __init__(self, run_s: float, deadline_s: float) -> None:
        self.now_s = 0.0
        self._run_s = run_s
        self._deadline_s = deadline_s

    def stopwatch(self, run: Callable[[], None]) -> float:
        self.now_s += self._run_s
        return 1e6 * self._run_s

    def left_s(self) -> float:
        return self._deadline_s - self.now_s

    def timed(self, monkeypatch: pytest.MonkeyPatch) -> Timing | None:
        monkeypatch.setattr("sampling.timing.timer.time.monotonic", lambda: self.now_s)
        settings = replace(SETTINGS, most_repeats=60, seconds=30.0, most_batches=5, median_error=-1.0, attempts=3)
        return time_phase(
            Scripted(),
            "forward",
            stopwatch=self.stopwatch,
            ranks=LoneRank(),
            together=False,
            done_per_run=1,
            settings=settings,
            left_s=self.left_s,
        )


@pytest.mark.parametrize(("deadline_s", "repeats"), [(7.0, 5), (22.5, 20), (1000.0, 150)])
def test_a_phase_has_the_repeats_that_fit_before_the_deadline(
    deadline_s: float, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(1.0, deadline_s)
    timing = clock.timed(monkeypatch)
    assert timing.repeats == repeats
    assert clock.now_s <= deadline_s


def test_a_phase_whose_least_repeats_do_not_fit_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(1.0, 6.0)
    assert clock.timed(monkeypatch) is None
    assert clock.now_s <= 6.0


class TwoRanks(LoneRank):
    """A second rank that is twice as slow."""

    def gather(self, values: list[float]) -> list[list[float]]:
        return [values, [2 * value for value in values]]


@pytest.mark.parametrize(("together", "expected"), [(True, 20.0), (False, 15.0)])
def test_a_call_of_the_group_takes_the_slowest_rank_and_neighbours_the_mean(together: bool, expected: float) -> None:
    timing, _ = timed([10.0] * 13, ranks=TwoRanks(), together=together)
    assert timing.median_us == expected


def test_the_load_of_others_is_what_our_processes_did_not_use() -> None:
    import os

    cores = os.cpu_count() or 1
    before, after = CpuClock(0.0, 100.0, 0.0), CpuClock(2.0, 100.0 + cores, 0.0)
    assert load_of_others(before, after, own_s=0.5 * cores) == pytest.approx(0.25)
    assert load_of_others(before, after, own_s=9.0 * cores) == 0.0


def good_timing(**changes: float) -> Timing:
    values = {"median_us": 1e6, "low_us": 9e5, "high_us": 2e6, "repeats": 9, "other_load": 0.0, "median_error": 0.0}
    return Timing(**{**values, "by_wall": True, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timing", "reason"),
    [
        (good_timing(), ""),
        (good_timing(median_us=1e-3), "physical bound"),
        (good_timing(median_error=0.5), "uncertain by 50 %"),
        (good_timing(other_load=0.3), "other processes took 30 %"),
        (good_timing(other_load=0.3, by_wall=False), ""),
    ],
)
def test_bad_rows_are_quarantined_with_the_reason(timing: Timing, reason: str, two_ranks: Cluster) -> None:
    call = Gemm(dtype="fp32", m=512, n=512, k=512)
    found = quarantine_reason(call, "forward", timing, two_ranks)
    assert reason in found
    assert bool(found) == bool(reason)


def test_the_time_of_a_row_is_that_of_its_undisturbed_repeats() -> None:
    quiet = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1]
    assert quiet_repeats([*quiet, 140.0, 180.0, 400.0]) == sorted(quiet)
    assert quiet_repeats([*quiet, *[150.0 + 0.1 * place for place in range(12)]]) == sorted(quiet)
    assert quiet_repeats([5.0]) == [5.0]
    assert quiet_repeats([7.0] * 9) == [7.0] * 9
