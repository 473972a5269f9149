"""The worker of a GPU session: the process that has the device.

python -m sampling.session.gpu_worker SETTINGS-AS-JSON      (`python -m sampling.gpu_session` starts it)
"""

import json
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sampling.command_line import exit_code_of
from sampling.errors import ConfigError, SamplesError
from sampling.hardware.cluster import hardware_facts, load_cluster
from sampling.hardware.readings import DeviceReading, read_device
from sampling.hardware.this_device import detect_hardware, entry_of, identify, most_ranks, one_of, same_device
from sampling.progress import progress_display
from sampling.ranks.launch import die_with_launcher, leave
from sampling.session.archive import FACTS, ArchiveFacts, SessionLog, read_facts, write_facts
from sampling.session.gpu_plan import Plan, make_plan
from sampling.session.gpu_run import LAST_CALL_S, LOST, Bench, WorkerLostError, time_plan
from sampling.session.profile import session_entry
from sampling.store.profiles import default_profile
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
    """The number of the session in the archive, which is made, or gets the session, if need be; sessions are recognised by their `token`.

    SamplesError where the archive holds another device or a rehearsal.
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
    session = {"token": settings.token, **session_entry(PRESETS[settings.timer])}
    number = join_session(directory, hardware=hardware, device=device, session=session)
    log = SessionLog(directory, time.monotonic)
    plan = settings.plan(hardware)
    bench, reading = device_bench(hardware, settings.timer, number, settings.until_s)
    log.record("reading", **asdict(reading()))
    left_s = settings.until_s - time.monotonic()
    try:
        with progress_display(f"calls, {plan.phases} phases planned", left_s) as show:
            time_plan(log, plan.planned, bench, now_s=time.monotonic, until_s=settings.until_s, show=show)
    except WorkerLostError as error:
        print(f"{error}; the next worker goes on behind this call", file=sys.stderr)
        return LOST
    log.record("reading", **asdict(reading()))
    return 0


def device_bench(hardware: str, timer: str, session: int, until_s: float) -> tuple[Bench, Callable[[], DeviceReading]]:
    """The `Bench` of this machine's device, and what reads its clock and power."""
    import torch

    from sampling.ranks.worker import ALONE, own_device
    from sampling.timing.time_calls import time_requests
    from sampling.torch_work.collectives.process_groups import LoneRank

    cluster = load_cluster(hardware=hardware, nodes=1, gpus_per_node=1, profile=default_profile(hardware))
    device = own_device(cluster, ALONE)
    torch.manual_seed(0)
    bench = partial(
        time_requests,
        device=device,
        cluster=cluster,
        ranks=LoneRank(),
        session=session,
        deadline_s=until_s + LAST_CALL_S,
        settings=PRESETS[timer],
    )
    return bench, lambda: read_device(device) if device.type != "cpu" else DeviceReading()


if __name__ == "__main__":
    # past the interpreter's teardown, which would wait for, or fail with, a device that is lost
    leave(exit_code_of(main, interrupted=""))
