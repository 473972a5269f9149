"""Burst and sustained timing on a device whose clock falls while it works and recovers while it rests."""

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch

from sampling.call import Phase
from sampling.hardware.readings import DeviceReading
from sampling.session.rehearsal import FakeClock, FakeDevice
from sampling.timing.device_states import device_phase_s, time_states, warm_up
from sampling.timing.failures import NoOpAfterFailure
from sampling.timing.launch_time import CaptureError, Captures, Launch
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import FULL, QUICK, TimerSettings, Timing, unlimited
from sampling.torch_work.collectives.process_groups import LoneRank
from sampling.torch_work.workload_protocols import Workload

SETTINGS = TimerSettings(burst_repeats=5, least_repeats=5, most_repeats=20, seconds=0.1, sustained_seconds=0.4)
COLD_MHZ, HOT_MHZ = 1980.0, 1650.0
RUN_US = 1000.0


class Workpiece:
    """Its first runs are slow, as those that load kernels are."""

    def __init__(self) -> None:
        self.runs = 0

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def run(self, phase: Phase) -> None:
        self.runs += 1


class Device:
    """Runs take RUN_US at its full clock, which falls to HOT_MHZ over 0.3 s of work; 1 ms of rest makes up for 1 ms.

    The host takes `host_us` to launch a run, which shows where the device did not wait for as long.
    """

    def __init__(
        self,
        *,
        slow_runs: int = 0,
        replay_us: float | None = None,
        says: bool = True,
        host_us: float = 0.0,
        capture_error: Exception | None = None,
    ) -> None:
        self.host_us = host_us
        self.capture_error = capture_error
        self.waited_us = 0.0
        self.captured: list[Phase] = []
        self.now, self.heat_s = 0.0, 0.0
        self.runs_left_slow = slow_runs
        self.replay_us = replay_us
        self.says = says
        self.flushes = self.rests = 0

    @property
    def clock_mhz(self) -> float:
        return COLD_MHZ - (COLD_MHZ - HOT_MHZ) * min(1.0, self.heat_s / 0.3)

    def flush_caches(self, workload: Workload) -> None:
        self.flushes += 1

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        return self.host_us, self.queued(run)()

    def wait(self, wait_us: float) -> None:
        self.waited_us = wait_us

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None]) -> float:
        lead()
        return self.queued(run)()

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        run()
        exposed_us, self.waited_us = max(0.0, self.host_us - self.waited_us), 0.0
        time_us = RUN_US * COLD_MHZ / self.clock_mhz * (1 + max(0, self.runs_left_slow)) + exposed_us
        self.runs_left_slow -= 1
        self.now += time_us / 1e6
        self.heat_s += time_us / 1e6
        return lambda: time_us

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        self.captured.append(phase)
        if self.capture_error:
            raise self.capture_error
        return self.replay_us

    def synchronize(self) -> None:
        """Everything is done at once."""

    def rest(self, seconds: float) -> None:
        self.rests += 1
        self.heat_s = max(0.0, self.heat_s - seconds)

    def now_s(self) -> float:
        return self.now

    def reading(self) -> DeviceReading:
        return DeviceReading(clock_mhz=self.clock_mhz, power_w=700.0) if self.says else DeviceReading()


def phase_on(device: Device | FakeDevice, **changes: object) -> TimedPhase:
    values = TimedPhase(
        kind="workpiece",
        workload=Workpiece(),
        as_built=Workpiece(),
        phase="forward",
        timer=device,
        ranks=LoneRank(),
        together=False,
        done_per_run=1,
        settings=SETTINGS,
    )
    return replace(values, **changes)  # type: ignore[arg-type]


def states(phase: TimedPhase, *, sustained: bool, captures: Captures | None = None) -> list[Timing]:
    return time_states(phase, captures or Captures(print), sustained=sustained)


def test_a_burst_is_at_the_full_clock_and_a_sustained_row_at_the_one_that_power_allows() -> None:
    burst, sustained = states(phase_on(Device()), sustained=True)
    assert (burst.state, sustained.state) == ("burst", "sustained")
    assert burst.median_us == pytest.approx(RUN_US, rel=0.01)
    assert sustained.median_us == pytest.approx(RUN_US * COLD_MHZ / HOT_MHZ, rel=0.01)
    assert burst.clock_mhz == pytest.approx(COLD_MHZ, rel=0.01)
    assert sustained.clock_mhz == pytest.approx(HOT_MHZ)
    assert sustained.power_w == 700.0


def test_a_device_that_says_nothing_is_heated_for_the_stated_time_alone() -> None:
    device = Device(says=False)
    _, sustained = states(phase_on(device), sustained=True)
    assert sustained.clock_mhz is sustained.power_w is None
    assert sustained.median_us == pytest.approx(RUN_US * COLD_MHZ / HOT_MHZ, rel=0.01)
    assert device.now < 2 * SETTINGS.sustained_seconds


def test_a_clock_that_still_moves_is_waited_for() -> None:
    device = Device()
    _, sustained = states(phase_on(device, settings=replace(SETTINGS, sustained_seconds=0.1)), sustained=True)
    assert sustained.median_us == pytest.approx(RUN_US * COLD_MHZ / HOT_MHZ, rel=0.03)


def test_runs_that_load_kernels_do_not_count() -> None:
    device = Device(slow_runs=8)
    assert warm_up(phase_on(device)) == pytest.approx(RUN_US, rel=0.1)
    (burst,) = states(phase_on(Device(slow_runs=8)), sustained=False)
    assert burst.high_us == pytest.approx(RUN_US, rel=0.1)


def test_a_warm_up_that_never_settles_ends() -> None:
    work = Workpiece()
    warm_up(phase_on(Device(), workload=work, settings=replace(SETTINGS, settle_error=-1.0)))
    assert work.runs == SETTINGS.most_warmups


def test_every_timed_run_finds_a_cold_cache_and_every_burst_a_rested_device() -> None:
    device, work = Device(), Workpiece()
    (burst,) = states(phase_on(device, workload=work), sustained=False)
    assert device.flushes == work.runs
    assert device.rests == burst.repeats


@pytest.mark.parametrize(("host_us", "wait_us"), [(400.0, 600.0), (5000.0, 7500.0), (1e6, 20_000.0)])
def test_the_device_waits_while_the_host_launches(host_us: float, wait_us: float) -> None:
    assert Launch(host_us=host_us, exposed_us=host_us).wait_us == wait_us


@pytest.mark.parametrize("host_us", [0.0, 400.0, 5000.0])
def test_launching_is_not_part_of_the_devices_time(host_us: float) -> None:
    burst, sustained = states(phase_on(Device(host_us=host_us)), sustained=True)
    assert burst.median_us == pytest.approx(RUN_US, rel=0.02)
    if host_us > RUN_US:
        assert sustained.median_us == pytest.approx(RUN_US * COLD_MHZ / HOT_MHZ, rel=0.05)


@pytest.mark.parametrize(("replay_us", "launch_us"), [(900.0, 500.0), (1500.0, 0.0), (None, 400.0)])
def test_what_launching_adds_is_over_a_replayed_graph_or_over_the_waiting_device(
    replay_us: float | None, launch_us: float
) -> None:
    burst, sustained = states(phase_on(Device(host_us=400.0, replay_us=replay_us)), sustained=True)
    assert sustained.launch_us is sustained.exposed_us is None
    assert burst.launch_us == pytest.approx(launch_us, abs=25)
    assert burst.exposed_us == pytest.approx(RUN_US + 400.0, abs=25)


def test_a_kind_of_call_that_cannot_be_captured_is_reported_and_not_tried_again() -> None:
    notes: list[str] = []
    refused = CaptureError("operation not permitted when stream is capturing")
    captures, device = Captures(notes.append), Device(host_us=400.0, capture_error=refused)
    for kind in ("grouped_gemm", "grouped_gemm", "moe_layer"):
        (burst,) = states(phase_on(device, kind=kind), sustained=False, captures=captures)
        assert burst.launch_us == pytest.approx(400.0, abs=25)
    assert len(device.captured) == 2
    assert [note.partition(":")[0] for note in notes] == ["grouped_gemm", "moe_layer"]
    assert "not permitted when stream is capturing" in notes[0]


def test_a_call_that_lacks_the_memory_for_a_graph_is_no_fault_of_its_kind() -> None:
    notes: list[str] = []
    captures, device = Captures(notes.append), Device(host_us=400.0, replay_us=900.0)
    device.capture_error = torch.OutOfMemoryError("CUDA out of memory")
    (large,) = states(phase_on(device), sustained=False, captures=captures)
    device.capture_error = None
    (small,) = states(phase_on(device), sustained=False, captures=captures)
    assert (large.launch_us, small.launch_us) == (pytest.approx(400.0, abs=25), pytest.approx(500.0, abs=25))
    assert notes == ["workpiece: too little memory to capture a graph of this call"]


def test_no_graph_is_captured_of_a_call_that_failed_before() -> None:
    class TooLarge(Workpiece):
        def run(self, phase: Phase) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

    device, tolerant = Device(replay_us=900.0), NoOpAfterFailure(TooLarge(), spans_ranks=False)
    states(phase_on(device, workload=tolerant), sustained=False)
    assert tolerant.reason == "ran out of memory"
    assert device.captured == []


def test_ranks_of_a_call_start_after_something_that_ends_on_all_of_them_at_once() -> None:
    starts: list[str] = []
    device = Device()
    device.wait = lambda wait_us: starts.append("wait")  # type: ignore[method-assign]
    phase = phase_on(device, together=True, wait_us=10.0, align=lambda: starts.append("align"))
    phase.isolated()
    phase.queued()
    assert starts == ["wait", "align"] * 2


def test_a_call_of_the_group_is_not_captured() -> None:
    (burst,) = states(phase_on(Device(replay_us=900.0), together=True), sustained=False)
    assert burst.launch_us is None


def test_a_run_that_does_the_call_several_times_is_divided() -> None:
    for timing in states(phase_on(Device(), done_per_run=4), sustained=True):
        assert timing.median_us == pytest.approx(RUN_US / 4, rel=0.25)


# Seconds that timing takes, beside the timer on a device whose clock passes only while something runs.


def phase_of(clock: FakeClock, run_s: float, left_s: Callable[[], float] = unlimited) -> TimedPhase:
    return phase_on(FakeDevice(clock, 1e6 * run_s, 10.0, captured=True), settings=TimerSettings(), left_s=left_s)


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


# The quick timer on a fake device whose runs are noisy: a fraction of the time, nearly the same medians.

NOISY_RUN_US, NOISE = 400.0, 0.03


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
    device = NoisyDevice(clock, NOISY_RUN_US, 50.0, True, chance=random.Random(seed))
    phase = phase_on(device, settings=settings)
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
