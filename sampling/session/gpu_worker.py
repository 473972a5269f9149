"""The worker of a GPU session: the process that has the device.

python -m sampling.session.gpu_worker SETTINGS-AS-JSON      (`python -m sampling.gpu_session` starts it)
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sampling.call import Call, Request
from sampling.errors import ConfigError, SamplesError, UserError
from sampling.hardware.cluster import hardware_facts, load_cluster
from sampling.hardware.readings import Reading, read_device
from sampling.hardware.this_device import (
    detect_hardware,
    entry_of,
    identify,
    most_ranks,
    one_of,
    provenance,
    same_device,
)
from sampling.progress import progress_display
from sampling.ranks.launch import die_with_launcher, leave
from sampling.session.archive import FACTS, ArchiveFacts, SessionLog, read_facts, write_facts
from sampling.session.gpu_plan import Plan, make_plan
from sampling.session.gpu_steps import LAST_CALL_S, LOST, WorkerLostError, time_plan
from sampling.store.profiles import default_profile
from sampling.store.sample import Sample
from sampling.timing.timer import PRESETS


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """The settings of a worker, JSON-able. `until_s` is on `time.monotonic`, which processes of one machine share."""

    out: str
    hardware: str
    """Entry of configs/hardware; '' for the device that is found."""
    calls: str
    """Calls file, '' for none."""
    models: int
    compiled: bool
    timer: str
    until_s: float
    token: str
    """The session's own, the same for all of its workers."""

    def plan(self, hardware: str) -> Plan:
        return make_plan(
            hardware, calls=Path(self.calls) if self.calls else None, models=self.models, compiled=self.compiled
        )


def join_session(
    directory: Path, *, hardware: str, device: Mapping[str, Any], session: Mapping[str, Any], rehearsal: bool = False
) -> int:
    """The number of the session in the archive, which is made, or gets the session, if need be; sessions are told by their `token`.

    SamplesError where the archive is of another device, or of a rehearsal.
    """
    if (directory / FACTS).is_file():
        facts = read_facts(directory)
        if facts.rehearsal != rehearsal:
            raise SamplesError(
                f"{directory}: holds {'a rehearsal' if facts.rehearsal else 'rows of a real device'}; give another --out"
            )
        if facts.hardware != hardware or not same_device(one_of(facts.device), one_of(device)):
            raise SamplesError(
                f"{directory}: its rows are from {facts.hardware}, {facts.device}; this session is on {hardware}, {device}; "
                "give another --out"
            )
    else:
        facts = ArchiveFacts(id=secrets.token_hex(8), hardware=hardware, device=dict(device), rehearsal=rehearsal)
    tokens = [known.get("token") for known in facts.sessions]
    if session["token"] not in tokens:
        facts = replace(facts, sessions=[*facts.sessions, dict(session)])
        write_facts(directory, facts)
    return len(tokens) if session["token"] not in tokens else tokens.index(session["token"])


def session_facts(token: str, timer: str) -> dict[str, Any]:
    """The facts of a session that begins now: its date, code and software, and how it times calls."""
    return {
        "token": token,
        "date": time.strftime("%Y-%m-%d"),
        **provenance(),
        "timer": asdict(PRESETS[timer]),
        "communication": {},
    }


def require_own(hardware: str, device: str) -> None:
    """ConfigError where the catalogue has the device of this name as other hardware; one that it lacks is taken for what is said."""
    found = entry_of(device)
    if found and hardware_facts(found).name != hardware_facts(hardware).name:
        raise ConfigError(f"--hardware: {hardware!r}, and this machine has {found!r} ({device}); omit it, or name that")


def main() -> int:
    die_with_launcher()
    settings = WorkerSettings(**json.loads(sys.argv[1]))
    directory = Path(settings.out)
    hardware = settings.hardware or detect_hardware()
    if hardware == "cpu" and not settings.hardware:
        raise ConfigError(
            "torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU and a torch build for it, rehearse with "
            "--dry-run, or time this machine's CPU with --hardware cpu"
        )
    most_ranks(hardware)
    device = identify(hardware)
    require_own(hardware, device["name"])
    session = session_facts(settings.token, settings.timer)
    number = join_session(directory, hardware=hardware, device=device, session=session)
    log = SessionLog(directory, time.monotonic)
    plan = settings.plan(hardware)
    bench = DeviceBench(hardware, settings.timer, number, settings.until_s)
    log.record("reading", **asdict(bench.reading()))
    left_s = settings.until_s - time.monotonic()
    try:
        with progress_display(f"calls, {plan.phases} phases planned", left_s) as show:
            time_plan(log, plan.planned, bench, now_s=time.monotonic, until_s=settings.until_s, show=show)
    except WorkerLostError as error:
        print(f"{error}; the next worker goes on behind this call", file=sys.stderr)
        return LOST
    log.record("reading", **asdict(bench.reading()))
    return 0


class DeviceBench:
    """The `Bench` of this machine's device."""

    def __init__(self, hardware: str, timer: str, session: int, until_s: float) -> None:
        import torch

        self._cluster = load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile=default_profile(hardware))
        self._settings = PRESETS[timer]
        self._session = session
        self._until_s = until_s
        self._device = torch.device("cpu" if self._cluster.gpu.kind == "cpu" else "cuda")
        if self._cluster.threads:
            torch.set_num_threads(self._cluster.threads)
        torch.manual_seed(0)

    def reading(self) -> Reading:
        return read_device(self._device) if self._device.type != "cpu" else Reading()

    def __call__(
        self,
        requests: Iterable[Request],
        *,
        keep: Callable[[Sample], None],
        say: Callable[[str], None],
        left_out: Callable[[Call, str], None],
    ) -> None:
        from sampling.timing.time_calls import time_requests
        from sampling.torch_work.collectives.process_groups import LoneRank

        time_requests(
            requests,
            device=self._device,
            cluster=self._cluster,
            ranks=LoneRank(),
            session=self._session,
            deadline_s=self._until_s + LAST_CALL_S,
            settings=self._settings,
            keep=keep,
            say=say,
            left_out=left_out,
        )


def exit_code_of(work: Callable[[], int]) -> int:
    """The exit code of a worker's work; an error of the user's goes to stderr and gives its own."""
    try:
        return work()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # the front door says what to do
        return 130


if __name__ == "__main__":
    # past the interpreter's teardown, which would wait for, or fail with, a device that is lost
    leave(exit_code_of(main))
