"""The dry run of a GPU session: its plan with its seconds, and a rehearsal of all of it."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sampling.gpu_session.archive import archive_lock, read_events
from sampling.gpu_session.import_archive import import_archive
from sampling.gpu_session.log import SessionLog
from sampling.gpu_session.plan import ANCHORS, Plan, make_plan
from sampling.gpu_session.rehearsal import FakeBench, FakeClock, Script
from sampling.gpu_session.session import (
    LAST_CALL_S,
    LOST,
    WorkerLostError,
    kept_at_the_end_s,
    run_steps,
    run_workers,
    time_plan,
)
from sampling.gpu_session.steps import RealStep, read_steps
from sampling.gpu_session.worker import join_session, session_facts
from sampling.hardware.cluster import device_names, hardware_entry, hardware_facts, load_cluster
from sampling.store.profiles import default_profile
from sampling.timing.timer import PRESETS
from sampling.units import MIB

FAKE_HARDWARE = "h200"
MILESTONES_S = (60.0, 200.0, 400.0, 1000.0)
"""Times at which the table says how many calls are done."""


@dataclass(slots=True)
class Rehearsal:
    """A session on a fake device, in one process: `run` is `sampling.gpu_session.__main__.run` with every effect a fake one."""

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
        start_s = self.clock()
        with archive_lock(self.directory):
            done = self._open().progress.answered_steps()
            until_s = start_s + self.budget_s - kept_at_the_end_s(self.steps, done, self.budget_s)
            run_workers(self._open, lambda: self._work(token, until_s), now_s=self.clock, until_s=until_s)
            log = self._open()
            run_steps(log, self.steps, self._step, now_s=self.clock, until_s=start_s + self.budget_s)
        return log

    def _open(self) -> SessionLog:
        return SessionLog(self.directory, self.clock)

    def _work(self, token: str, until_s: float) -> int:
        """A worker's life: a new one finds a device that works again."""
        settings = PRESETS[self.timer]
        number = join_session(
            self.directory,
            hardware=self.hardware,
            device=fake_device(self.hardware),
            session=session_facts(token, self.timer),
            rehearsal=True,
        )
        cluster = load_cluster(hardware=self.hardware, nodes=1, gpus_per_node=1, profile=default_profile(self.hardware))
        bench = FakeBench(self.clock, cluster, settings, number, self.script, until_s + LAST_CALL_S)
        try:
            time_plan(self._open(), self.plan.planned, bench, now_s=self.clock, until_s=until_s)
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
            f"rehearsed in {rehearsal.clock():,.0f} s of a fake clock: {log.progress.summary()}",
            f"archive: {len(files)} files, {sum(files) / MIB:.1f} MiB, the largest {max(files) / MIB:.1f} MiB",
            f"import: {imported}",
        ]
    )


def _imported(archive: Path, data: Path) -> str:
    if lacking := [name for name in ("pandas", "pyarrow") if find_spec(name) is None]:
        return f"not rehearsed: it needs {' and '.join(lacking)}, which a machine that only times does not"
    return import_archive(archive, data=data, rehearsed=True).partition(" in ")[0]


def failures(plan: Plan) -> Script:
    """One kind of call of which no graph can be captured, and one call that ends the device: the rehearsal goes on behind both."""
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
        f"{sum(at <= limit for at in ended_s):,} in {limit:,.0f} s"
        for limit in (*(limit for limit in MILESTONES_S if limit < last_s), last_s)
    ]
    lines += [f"  calls timed, start-up included: {', '.join(reached)}"]
    if plan.left_out:
        lines += [f"  {plan.left_out:,} calls left out: they need a compiler (--compile) or several GPUs"]
    return lines
