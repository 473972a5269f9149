"""A rehearsal of a GPU session: the real plan, timer, log and archive over a fake device with a fake clock.

The fake device takes the roofline's time for each run and the host's time for each launch, so that the seconds of a rehearsal are
the estimate of the session's. It cannot know how a real device fails: that is scripted.
"""

import argparse
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase, Request
from sampling.files.faults import counted
from sampling.hardware.cluster import Cluster, device_names, hardware_entry, hardware_facts, load_cluster
from sampling.hardware.readings import DeviceReading
from sampling.number_text import duration, seconds, significant
from sampling.session.archive import SessionLog, archive_lock, read_events
from sampling.session.gpu_plan import ANCHORS, Plan, make_plan
from sampling.session.gpu_run import LAST_CALL_S, LOST, RealStep, WorkerLostError, read_steps, spend, time_plan
from sampling.session.gpu_worker import join_session
from sampling.session.import_archive import import_archive
from sampling.session.profile import session_entry
from sampling.speed_of_light import physical_bound_us
from sampling.store.pace_log import TIMED_AS, PaceReading
from sampling.store.profiles import default_profile
from sampling.store.sample import Sample
from sampling.timing import pace
from sampling.timing.device_states import time_states
from sampling.timing.launch_time import REPLAYS, WARM_UPS, CaptureError, Captures
from sampling.timing.pace import EVERY_S, reference_calls
from sampling.timing.row_checks import timed_row
from sampling.timing.timed_phase import TimedPhase
from sampling.timing.timer import PRESETS, TimerSettings
from sampling.torch_work.collectives.process_groups import LoneRank
from sampling.torch_work.workload_protocols import Workload
from sampling.units import MIB, SECOND_US

START_S = 15.0
"""Time from a worker's start to its first call: torch's import, the device's context, the draw of the plan."""
BUILD_S = 0.15
"""Time to make a call's tensors and modules, and for libraries to load its kernels."""
HOST_US = 200.0
"""Time of the host per run: the preparation (a backward needs a forward), the flush of the cache, two events."""
LAUNCH_US = 6.0
"""Time of the host per kernel of a run."""
OVER_THE_BOUND = 1.4
"""Time of a run over the physical bound: 70 % of the peak. This and the times above are round figures that no GPU has confirmed."""
REFUSAL = "the device lacks what this call needs"
BURST_MHZ, SUSTAINED_MHZ, WATTS = 1980.0, 1755.0, 650.0


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only where something takes time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """The faults of a rehearsal: kinds of calls whose graphs cannot be captured, calls that the device refuses, and calls that
    end it."""

    uncaptured: Collection[str] = ()
    refused: Collection[Call] = ()
    fatal: Collection[Call] = ()


class FakeDeviceError(RuntimeError):
    """A device that failed, and fails whatever it is asked next until its process ends."""


@dataclass(slots=True)
class FakeDevice:
    """The `DeviceTimer` of a fake device while it runs one phase of `run_us`, whose kernels the host launches in `launch_us`."""

    clock: FakeClock
    run_us: float
    launch_us: float
    captured: bool
    busy: bool = False

    def flush_caches(self, workload: Workload) -> None:
        """The host's time for it is in HOST_US."""

    def launching(self, run: Callable[[], None]) -> tuple[float, float]:
        exposed_us = max(self.run_us, self.launch_us)
        self.clock.pass_s((HOST_US + exposed_us) / 1e6)
        return self.launch_us, exposed_us

    def wait(self, wait_us: float) -> None:
        self.clock.pass_s(wait_us / 1e6)

    def isolated(self, run: Callable[[], None], *, lead: Callable[[], None]) -> float:
        self.busy = False
        lead()
        self.clock.pass_s((HOST_US + self.run_us) / 1e6)
        return self.run_us

    def queued(self, run: Callable[[], None]) -> Callable[[], float]:
        self.busy = True
        run_us = self.run_us * BURST_MHZ / SUSTAINED_MHZ
        self.clock.pass_s(max(HOST_US + self.launch_us, run_us) / 1e6)
        return lambda: run_us

    def replayed(self, workload: Workload, phase: Phase) -> float | None:
        self.clock.pass_s((WARM_UPS + REPLAYS) * (HOST_US + self.run_us) / 1e6)
        if not self.captured:
            raise CaptureError("operation not permitted when stream is capturing")
        return self.run_us

    def synchronize(self) -> None:
        """Everything is done at once."""

    def rest(self, seconds: float) -> None:
        self.clock.pass_s(seconds)

    def now_s(self) -> float:
        return self.clock.now

    def reading(self) -> DeviceReading:
        return DeviceReading(clock_mhz=SUSTAINED_MHZ if self.busy else BURST_MHZ, power_w=WATTS)


class NoWork:
    """The workload of a fake device."""

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def run(self, phase: Phase) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class FakeBench:
    """The `Bench` of a worker on a fake device; a new one is a new process."""

    clock: FakeClock
    cluster: Cluster
    settings: TimerSettings
    session: int
    script: Script
    deadline_s: float
    """Time on the clock after which no phase is begun."""

    def __call__(
        self,
        requests: Iterable[Request],
        *,
        keep: Callable[[Sample], None],
        say: Callable[[str], None],
        left_out: Callable[[Call, str], None],
        keep_reading: Callable[[PaceReading], None],
    ) -> None:
        captures = Captures(say)
        self.clock.pass_s(START_S)
        read_s = -math.inf
        for request in requests:
            if self.left_s() <= 0:
                break
            if self.clock() - read_s >= EVERY_S:
                read_s = self.clock()
                for reading in self._read_pace():
                    keep_reading(reading)
            self.clock.pass_s(BUILD_S)
            if request.call in self.script.refused:
                left_out(request.call, REFUSAL)
            else:
                self._time(request, keep, captures)

    def left_s(self) -> float:
        return self.deadline_s - self.clock()

    def _read_pace(self) -> list[PaceReading]:
        found = []
        for resource, call in reference_calls(self.cluster).items():
            time_us = OVER_THE_BOUND * physical_bound_us(call, "forward", self.cluster)
            self.clock.pass_s(sum(pace.runs_of(call)) * (HOST_US + time_us) / 1e6)
            found.append(
                PaceReading(
                    at_s=self.clock(),
                    session=self.session,
                    busy_ranks=1,
                    resource=resource,
                    ranks=call.group_size,
                    size=pace.size_of(call),
                    time_us=time_us,
                    slowest_us=time_us,
                    mean_us=time_us,
                    timed_as=TIMED_AS,
                )
            )
        return found

    def _time(self, request: Request, keep: Callable[[Sample], None], captures: Captures) -> None:
        for phase in request.phases:
            if self.left_s() <= 0:
                break
            if request.call in self.script.fatal:
                raise FakeDeviceError("an illegal memory access was encountered")
            rows = self._rows(request.call, phase, captures)
            for row in rows:
                keep(row)
            if not rows:
                break

    def _rows(self, call: Call, phase: Phase, captures: Captures) -> list[Sample]:
        kernels = max(1, len(call.parts(phase)))
        timed = TimedPhase(
            kind=call.NAME,
            workload=NoWork(),
            as_built=NoWork(),
            phase=phase,
            timer=FakeDevice(
                self.clock,
                OVER_THE_BOUND * physical_bound_us(call, phase, self.cluster) + 2.0,
                LAUNCH_US * kernels,
                call.NAME not in self.script.uncaptured,
            ),
            ranks=LoneRank(),
            together=False,
            done_per_run=call.DONE_PER_RUN,
            settings=self.settings,
            left_s=self.left_s,
        )
        timings = time_states(timed, captures, sustained=isinstance(call, Operator))
        return [
            timed_row(
                call,
                phase,
                replace(timing, other_load=0.0),
                cluster=self.cluster,
                session=self.session,
                at_s=self.clock(),
            )
            for timing in timings
        ]


FAKE_HARDWARE = "h200"
MILESTONES_S = (60.0, 200.0, 400.0, 1000.0)
"""Times at which the table says how many calls are done."""


@dataclass(slots=True)
class Rehearsal:
    """A session on a fake device, in one process, with fake effects only."""

    directory: Path
    hardware: str
    plan: Plan
    timer: str
    budget_s: float
    steps: tuple[RealStep, ...] = ()
    script: Script = field(default_factory=Script)
    clock: FakeClock = field(default_factory=FakeClock)

    def run(self, token: str = "rehearsal") -> SessionLog:
        """Spend the budget from now on, and return the log."""
        with archive_lock(self.directory):
            return spend(
                self.directory,
                self.steps,
                until_s=self.clock() + self.budget_s,
                now_s=self.clock,
                work=partial(self._work, token),
                run_step=self._step,
            )

    def _work(self, token: str, until_s: float) -> int:
        """A worker's life: a new one finds a device that works again."""
        settings = PRESETS[self.timer]
        number = join_session(
            self.directory,
            hardware=self.hardware,
            device=fake_device(self.hardware),
            session={"token": token, **session_entry(settings)},
            rehearsal=True,
        )
        cluster = load_cluster(hardware=self.hardware, nodes=1, gpus_per_node=1, profile=default_profile(self.hardware))
        bench = FakeBench(self.clock, cluster, settings, number, self.script, until_s + LAST_CALL_S)
        try:
            time_plan(
                SessionLog(self.directory, self.clock), self.plan.planned, bench, now_s=self.clock, until_s=until_s
            )
        except WorkerLostError:
            return LOST
        return 0

    def _step(self, step: RealStep, limit_s: float) -> dict[str, Any]:
        self.clock.pass_s(step.seconds)
        return {"rehearsed": True}


def fake_device(hardware: str) -> dict[str, Any]:
    """The answer of `sampling.hardware.this_device.identify` on a machine with one such device."""
    facts = hardware_facts(hardware)
    return {"name": (device_names(hardware) or (facts.name,))[0], "count": 1, "memory_gib": facts.memory_gib}


def dry_run(options: argparse.Namespace) -> str:
    """Rehearse the session of the options, with a capture and a device that fail on the way; its table."""
    hardware = hardware_entry(options.hardware or FAKE_HARDWARE)
    plan = make_plan(hardware, calls=options.calls, models=options.models, compiled=options.compile)
    with tempfile.TemporaryDirectory(prefix="steptime-rehearsal-") as scratch:
        rehearsal = Rehearsal(
            directory=options.out or Path(scratch) / "archive",
            hardware=hardware,
            plan=plan,
            timer=options.timer,
            budget_s=60 * options.minutes,
            steps=tuple(read_steps(options.steps, on_cpu=hardware == "cpu")),
            script=failures(plan),
        )
        log = rehearsal.run()
        imported = _imported(rehearsal.directory, Path(scratch))
        files = [path.stat().st_size for path in rehearsal.directory.iterdir()]
        table = plan_table(plan, rehearsal.steps, list(read_events(rehearsal.directory)), hardware, options.timer)
    return "\n".join(
        [
            *table,
            f"rehearsed in {seconds(rehearsal.clock())} of a fake clock: {log.progress.summary()}",
            f"archive: {counted(len(files), 'file')}, {significant(sum(files) / MIB)} MiB, the largest {significant(max(files) / MIB)} MiB",
            f"import: {imported}",
        ]
    )


def _imported(archive: Path, data: Path) -> str:
    if lacking := [name for name in ("pandas", "pyarrow") if find_spec(name) is None]:
        return f"not rehearsed: it needs {' and '.join(lacking)}, which a machine that only times does not"
    return import_archive(archive, data=data, rehearsed=True).partition(" in ")[0]


def failures(plan: Plan) -> Script:
    """One kind of call whose graph cannot be captured, and one call that ends the device: the rehearsal goes on behind both."""
    anchors = [each.request.call for each in plan.planned if each.section == ANCHORS]
    return Script(uncaptured=[call.NAME for call in anchors[:1]], fatal=anchors[-1:])


def plan_table(
    plan: Plan, steps: Sequence[RealStep], events: list[dict[str, Any]], hardware: str, timer: str
) -> list[str]:
    """Lines with the calls of each section, those that the session reaches, and the seconds that they take."""
    planned = Counter(each.section for each in plan.planned)
    done: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    ended_s, begun_s, section = [], 0.0, ""
    for event in events:
        if event["event"] == "begin":
            begun_s, section = event["at_s"], event["section"]
        elif event["event"] in ("end", "lost"):
            done[section] += 1
            seconds[section] += event["at_s"] - begun_s
            ended_s.append(event["at_s"])
    lines = [f"plan for one {hardware_facts(hardware).name}, timer {timer}; {plan.phases:,} phases"]
    lines += [f"  {'section':<10}{'calls':>7}{'reached':>9}{'seconds':>9}"]
    lines += [f"  {name:<10}{count:>7,}{done[name]:>9,}{seconds[name]:>9.0f}" for name, count in planned.items()]
    if steps:
        run = {event["name"] for event in events if event["event"] == "step"}
        seconds_run = sum(step.seconds for step in steps if step.name in run)
        lines += [f"  {'real steps':<10}{len(steps):>7,}{len(run):>9,}{seconds_run:>9.0f}"]
    last_s = (ended_s or [0.0])[-1]
    reached = [
        f"{sum(at <= limit for at in ended_s):,} in {duration(limit * SECOND_US)}"
        for limit in (*(limit for limit in MILESTONES_S if limit < last_s), last_s)
    ]
    lines += [f"  calls timed, start-up included: {', '.join(reached)}"]
    if plan.left_out:
        lines += [f"  {plan.left_out:,} calls left out: they need a compiler (--compile) or several GPUs"]
    return lines
