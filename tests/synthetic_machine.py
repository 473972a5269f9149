"""A machine whose true times are known and whose pace is not steady: it stands in for torch and for the clock while the real timer,
the real fits and the real step run on it, thousands of times faster than on a machine.

Times of calls are their roofline terms over efficiencies that differ from seed to seed. A disturbance slows compute, memory and
communication of each rank, each by its own factor, as time passes; repeats of a call scatter beside that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from unittest import mock

import numpy as np

from regressors.bank.times import Times
from regressors.features.arrays import Floats
from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster
from sampling.hardware.readings import CpuClock, DeviceReading
from sampling.store.pace import RESOURCES, resource_shares

CORES = 2
HORIZON_S = 4 * 3600
"""Seconds of the machine's life that are drawn, one value a second."""
REPEAT_NOISE = 0.02
"""Standard deviation of the logarithm of one repeat on a quiet machine; facts of real machines: 0.003 to 0.04."""
MOMENT_NOISE = 0.006
"""The same of all repeats of one timing together: where its memory lies, what the caches held."""
DRAWN = 4096
"""Random numbers drawn at once."""
FULL_TAIL = 5.0
"""Largest slowdown of a single repeat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """Slowdowns [resources, ranks, seconds], the share of the CPU that others take [seconds], and how single repeats are disturbed:
    the share of those that are, and the scale of their slowdown."""

    slowdown: Floats
    others: Floats
    tail_share: float = 0.0
    tail_scale: float = 0.0


def calm(random: np.random.Generator, ranks: int) -> Weather:
    return Weather(slowdown=np.ones((len(RESOURCES), ranks, HORIZON_S)), others=np.zeros(HORIZON_S))


def drifting(random: np.random.Generator, ranks: int) -> Weather:
    """The pace wanders by 8 % (standard deviation) with a memory of three minutes, and compute and memory by 2 % apart."""
    weather = calm(random, ranks)
    common = _wandering(random, deviation=0.08, memory_s=180)
    for resource in range(len(RESOURCES)):
        weather.slowdown[resource] *= np.exp(common + _wandering(random, deviation=0.02, memory_s=180))
    return weather


def bursts(random: np.random.Generator, ranks: int) -> Weather:
    """Another process runs for 20 s at a time, a quarter of the time: it takes caches, bandwidth, and a share of the CPU."""
    weather = calm(random, ranks)
    for first, last in _spells(random, on_s=20, off_s=60):
        strength = random.uniform(0.1, 0.5)
        for resource, share in zip(range(len(RESOURCES)), (0.7, 1.3, 1.5), strict=True):
            weather.slowdown[resource, :, first:last] *= 1 + share * strength
        weather.others[first:last] = random.uniform(0.15, 0.5)
    return weather


def heavy_tails(random: np.random.Generator, ranks: int) -> Weather:
    """Each repeat in eight is slowed by a factor whose tail falls as a power, in the session and in the step alike."""
    return replace(calm(random, ranks), tail_share=0.12, tail_scale=0.15)


def stragglers(random: np.random.Generator, ranks: int) -> Weather:
    """One rank at a time is slow for 15 s, a quarter of the time; the others wait for it."""
    weather = calm(random, ranks)
    for first, last in _spells(random, on_s=15, off_s=45):
        weather.slowdown[:, random.integers(ranks), first:last] *= random.uniform(1.15, 1.6)
    return weather


def falling_clocks(random: np.random.Generator, ranks: int) -> Weather:
    """The clock of compute falls to 85 % within a minute of work and stays about there; memory follows by a third."""
    weather = calm(random, ranks)
    fallen = 0.15 * (1 - np.exp(-np.arange(HORIZON_S) / 40)) + _wandering(random, deviation=0.015, memory_s=60)
    weather.slowdown[0] *= 1 / (1 - fallen)
    weather.slowdown[1] *= 1 / (1 - fallen / 3)
    return weather


DISTURBANCES: Mapping[str, Callable[[np.random.Generator, int], Weather]] = {
    "none": calm,
    "drifting pace": drifting,
    "bursts of load": bursts,
    "heavy tails": heavy_tails,
    "stragglers": stragglers,
    "clocks that fall": falling_clocks,
}


def _wandering(random: np.random.Generator, *, deviation: float, memory_s: float) -> Floats:
    """An Ornstein-Uhlenbeck process [seconds] in its steady state."""
    from scipy.signal import lfilter

    kept = math.exp(-1 / memory_s)
    steps = random.normal(0.0, deviation * math.sqrt(1 - kept**2), HORIZON_S)
    steps[0] = random.normal(0.0, deviation)
    path: Floats = lfilter([1.0], [1.0, -kept], steps)
    return path


def _spells(random: np.random.Generator, *, on_s: float, off_s: float) -> Iterator[tuple[int, int]]:
    second = random.exponential(off_s)
    while second < HORIZON_S:
        last = second + random.exponential(on_s)
        yield int(second), min(HORIZON_S, int(last) + 1)
        second = last + random.exponential(off_s)


@dataclass(kw_only=True, slots=True)
class SyntheticMachine:
    """`now_s` is its clock; everything random follows from the seed."""

    cluster: Cluster
    disturbance: str
    seed: int
    now_s: float = 1.0
    last_run_us: float = field(init=False, default=0.0)
    """µs of the last run on rank 0."""
    random: np.random.Generator = field(init=False)
    weather: Weather = field(init=False)
    _efficiency: dict[str, float] = field(init=False, default_factory=dict)
    _true: dict[tuple[Call, Phase], tuple[float, list[float]]] = field(init=False, default_factory=dict)
    _others_s: Floats = field(init=False)
    _slowdown_at: int = field(init=False, default=-1)
    _slowdown: list[list[float]] = field(init=False, default_factory=list)
    _repeats: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, list(DISTURBANCES).index(self.disturbance)])
        self.weather = DISTURBANCES[self.disturbance](self.random, self.ranks)
        self._others_s = CORES * np.cumsum(self.weather.others)

    @property
    def ranks(self) -> int:
        return self.cluster.gpus_per_node

    def true_us(self, call: Call, phase: Phase) -> float:
        """µs of a call on the undisturbed machine."""
        return self._truth(call, phase)[0]

    def _truth(self, call: Call, phase: Phase) -> tuple[float, list[float]]:
        """The time, and the share of each resource in it [resources]."""
        known = self._true.get((call, phase))
        if known is None:
            terms = call.terms(phase, self.cluster)
            total = sum(value / self._efficiency_of(name) for name, value in terms.items())
            shares = resource_shares(call, phase, self.cluster)
            known = self._true[call, phase] = (total + 5.0, [shares[each] for each in RESOURCES])
        return known

    def _efficiency_of(self, term: str) -> float:
        if term not in self._efficiency:
            self._efficiency[term] = 0.4 * math.exp(self.random.normal(0.0, 0.3))
        return self._efficiency[term]

    def slowdown(self, at_s: float) -> Floats:
        """[resources, ranks] at a moment."""
        return self.weather.slowdown[:, :, min(int(at_s), HORIZON_S - 1)]

    def tails(self, count: int) -> Floats:
        """Slowdowns of single repeats [count]."""
        hit = self.random.random(count) < self.weather.tail_share
        drawn = 1 + self.weather.tail_scale * (1 + self.random.pareto(1.8, count))
        return np.where(hit, np.minimum(drawn, FULL_TAIL), 1.0)

    def run_us(self, call: Call, phase: Phase) -> list[float]:
        """µs of one run on each rank, now; the clock goes on by the longest."""
        true_us, shares = self._truth(call, phase)
        at = min(int(self.now_s), HORIZON_S - 1)
        if at != self._slowdown_at:
            self._slowdown_at, self._slowdown = at, self.weather.slowdown[:, :, at].T.tolist()
        times = [
            true_us * sum(share * slow for share, slow in zip(shares, of_rank, strict=True)) * self._repeat()
            for of_rank in self._slowdown
        ]
        longest = max(times)
        if call.group_size > 1:
            times = [longest] * self.ranks
        self.now_s += longest * call.DONE_PER_RUN / 1e6
        return [time_us * call.DONE_PER_RUN for time_us in times]

    def _repeat(self) -> float:
        """Noise and disturbance of one repeat."""
        if not self._repeats:
            noise = np.exp(self.random.normal(0.0, REPEAT_NOISE, DRAWN))
            self._repeats = (noise * self.tails(DRAWN)).tolist()
        return self._repeats.pop()

    def _cpu_clock(self) -> CpuClock:
        return CpuClock(self.now_s, float(self._others_s[min(int(self.now_s), HORIZON_S - 1)]), 0.0)

    def stopwatch_of(self, threads: int, together: bool) -> Callable[[Callable[[], None]], float]:
        return self._wall_stopwatch if together or threads > 1 else self._thread_stopwatch

    def _wall_stopwatch(self, run: Callable[[], None]) -> float:
        run()
        return self.last_run_us

    def _thread_stopwatch(self, run: Callable[[], None]) -> float:
        return self._wall_stopwatch(run)

    def _process_stopwatch(self, run: Callable[[], None]) -> float:
        return self._wall_stopwatch(run) * self.cluster.threads

    @contextmanager
    def in_place_of_torch(self) -> Iterator[SyntheticRanks]:
        """The timer times this machine's calls by this machine's clock in the block."""
        ranks = SyntheticRanks(self)
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: self.now_s)

        def build(call: Call, device: object) -> SyntheticWorkload:
            return SyntheticWorkload(self, ranks, call)

        replaced = {
            "sampling.timing.time_calls.build": build,
            "sampling.timing.pace.build": build,
            "sampling.timing.time_calls.host_stopwatch": self.stopwatch_of,
            "sampling.timing.time_calls.process_stopwatch": self._process_stopwatch,
            "sampling.timing.time_calls.gpu_timer": lambda device, cache_bytes: SyntheticDevice(self),
            "sampling.timing.device_states.read_cpu_clock": self._cpu_clock,
            "sampling.timing.timer.thread_stopwatch": self._thread_stopwatch,
            "sampling.timing.timer.read_cpu_clock": self._cpu_clock,
            **{f"sampling.timing.{module}.time": clock for module in ("time_calls", "timer", "pace")},
        }
        with ExitStack() as stack:
            for name, stand_in in replaced.items():
                stack.enter_context(mock.patch(name, stand_in))
            yield ranks


class SyntheticWorkload:
    """A call of a synthetic machine; all repeats of one timing share an error of their own."""

    def __init__(self, machine: SyntheticMachine, ranks: SyntheticRanks, call: Call) -> None:
        self._machine, self._ranks, self._call = machine, ranks, call
        self._luck = math.exp(machine.random.normal(0.0, MOMENT_NOISE))

    def prepare(self, phase: Phase) -> None: ...

    def run(self, phase: Phase) -> None:
        own_us, *others_us = self._machine.run_us(self._call, phase)
        self._ranks.others.append([self._luck * each for each in others_us])
        self._machine.last_run_us = self._luck * own_us


HOST_US = 200.0
"""Time of the host per run on a GPU: the preparation, the flush of the cache, two events; as the rehearsal of sessions has it."""
LAUNCH_US = 6.0
CLOCK_MHZ = 1980.0


@dataclass(frozen=True, slots=True)
class SyntheticDevice:
    """The `DeviceTimer` of a synthetic machine with a GPU, whose clock follows the slowdown of compute."""

    machine: SyntheticMachine

    def flush_caches(self, workload: SyntheticWorkload) -> None:
        self.rest(HOST_US / 1e6)

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        return LAUNCH_US, self.isolated(run)

    def wait(self, wait_us: float) -> None:
        self.rest(wait_us / 1e6)

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None] = lambda: None) -> float:
        lead()
        run()
        return self.machine.last_run_us

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        time_us = self.isolated(run)
        return lambda: time_us

    def replayed(self, workload: SyntheticWorkload, phase: Phase) -> float:
        return self.isolated(lambda: workload.run(phase))

    def synchronize(self) -> None: ...

    def rest(self, seconds: float) -> None:
        self.machine.now_s += seconds

    def now_s(self) -> float:
        return self.machine.now_s

    def reading(self) -> DeviceReading:
        slowest = float(self.machine.slowdown(self.machine.now_s)[0].max())
        return DeviceReading(clock_mhz=CLOCK_MHZ / slowest, power_w=None)


class SyntheticRanks:
    """All ranks of the machine, seen from rank 0."""

    def __init__(self, machine: SyntheticMachine) -> None:
        self._machine = machine
        self.others: list[list[float]] = []
        """µs of the other ranks in each run so far [ranks - 1]."""

    def barrier(self) -> None: ...

    def largest(self, value: float) -> float:
        return value

    def total(self, value: float) -> float:
        return value

    def gather(self, values: list[float]) -> list[list[float]]:
        if self._machine.ranks == 1:
            return [values]
        found = [values, *map(list, zip(*self.others[-len(values) :], strict=True))]
        self.others.clear()
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class TrueTimes:
    """A cost model that knows the machine's true times, slowed as they are at a moment (`slowdown` [resources]), each by the luck of its
    process (a standard deviation in log)."""

    machine: SyntheticMachine
    slowdown: Floats
    luck: float = 0.0

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times | None]:
        return [self._time(call, phase) for call, phase in calls]

    def _time(self, call: Call, phase: Phase) -> Times:
        true_us, shares = self.machine._truth(call, phase)
        luck = math.exp(self.machine.random.normal(0.0, self.luck)) if self.luck else 1.0
        time_us = true_us * float(np.dot(shares, self.slowdown)) * luck
        return Times(median_us=time_us, low_us=time_us, high_us=time_us, source="measured")
