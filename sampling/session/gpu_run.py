"""A GPU session: workers time the plan one after the other until one ends well, then real steps run.

A worker is a process with the device; it ends where the device, the driver or a kernel fails. The call that it timed then is left
out, and the next worker goes on behind it.
"""

import importlib.util
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from sampling.call import Call, Request
from sampling.errors import SamplesError, UserError, in_one_line
from sampling.files.places import CONFIGS, PACKAGE
from sampling.files.schema import Key, read
from sampling.number_text import plain
from sampling.progress import Progress as Show
from sampling.progress import silent
from sampling.ranks.launch import environment
from sampling.session.archive import SessionLog
from sampling.session.gpu_plan import Planned
from sampling.store.pace_log import PaceReading
from sampling.store.sample import Sample
from sampling.timing.timer import LONGEST_CALL_S

DEFAULT = CONFIGS / "sampling" / "gpu-steps.json"
MOST_ANSWER_BYTES = 200_000
"""Largest answer that is kept; one of `predict measure --json` has a few kB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RealStep:
    """One command, given to this Python: `-m MODULE ARGUMENTS…`. What it prints must be JSON.

    In an argument, `{hardware}` stands for the session's entry of configs/hardware.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    seconds: Annotated[float, Key(minimum=0, maximum=3600)]
    """Time that it takes at most, from start to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsFile:
    """The real steps of a session, in their order."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    steps: tuple[RealStep, ...]


def read_steps(path: Path | None, *, on_cpu: bool) -> Sequence[RealStep]:
    """The steps of a file; without one those of one GPU, and none on a CPU. ConfigError with every fault."""
    if path is None and on_cpu:
        return ()
    return read(StepsFile, path or DEFAULT).steps


def run_step(step: RealStep, limit_s: float, *, hardware: str) -> dict[str, Any]:
    """The JSON that the step's command printed, or {"error": why there is nothing}. Paths are relative to the clone."""
    if importlib.util.find_spec(step.module) is None:
        return {"error": f"there is no module {step.module}"}
    arguments = [argument.replace("{hardware}", hardware) for argument in step.arguments]
    command = [sys.executable, "-m", step.module, *arguments]
    try:
        done = subprocess.run(
            command, cwd=PACKAGE, env=environment(0), capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"was not done after {plain(limit_s)} s"}
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        return {"error": f"exit code {done.returncode}: {' | '.join(last)}"}
    return _answer(done.stdout)


def _answer(printed: bytes) -> dict[str, Any]:
    if len(printed) > MOST_ANSWER_BYTES:
        return {"error": f"printed {len(printed):,} bytes, more than the {MOST_ANSWER_BYTES:,} that are kept"}
    try:
        answer = json.loads(printed)
    except ValueError:
        return {"error": "did not print JSON"}
    return answer if isinstance(answer, dict) else {"answer": answer}


LOST = 75
"""Exit code of a worker whose device failed (EX_TEMPFAIL of sysexits.h: try again)."""
MOST_LOST = 8
"""Workers lost in one session after which the device itself is taken to be broken."""
TOO_SLOW = 124
"""Exit code that stands for a worker that was ended since its call took too long (as timeout(1) gives)."""
CALL_SHARE, LEAST_CALL_S = 0.1, 30.0
"""Largest share of the budget that one call may take, build included, and seconds that every call may take."""
LAST_CALL_S = 10.0
"""Time for the last call that was begun: its phases are cut short then."""
LEAVING_S = 10.0
"""Time for a worker to end after its last call: a reading of the device, and the process itself."""
END_SHARE = 0.4
"""Largest share of the budget that is kept for real steps."""


PASSES = (2.0, math.inf)
"""Passes of a worker through the plan, by the timings of a phase, good or quarantined, after which it is passed over: on a machine that
disturbs every timing, new calls come before third timings of old ones."""


class Bench(Protocol):
    """Times requests in order on a device; hands over each row, each call that it leaves out with the reason, and each reading of the
    device's pace."""

    def __call__(
        self,
        requests: Iterable[Request],
        *,
        keep: Callable[[Sample], None],
        say: Callable[[str], None],
        left_out: Callable[[Call, str], None],
        keep_reading: Callable[[PaceReading], None],
    ) -> None: ...


class WorkerLostError(Exception):
    """The device failed; the log says with which call."""


def time_plan(
    log: SessionLog,
    planned: Sequence[Planned],
    bench: Bench,
    *,
    now_s: Callable[[], float],
    until_s: float,
    show: Show = silent,
) -> None:
    """Time what the log lacks of the plan, in order; no call is begun after `until_s`. `show` gets the progress.

    Raises WorkerLostError, with the call left out, where the bench fails.
    """
    reasons: dict[Call, str] = {}

    def requests() -> Iterator[Request]:
        for timings, (done, each) in product(PASSES, list(enumerate(planned))):
            lacking = log.progress.lacking(each.request, timings)
            if lacking is None:
                continue
            if now_s() >= until_s:
                return
            show(done, len(planned), f"{each.section}: {lacking.call.NAME}")
            log.begin(lacking, each.section)
            yield lacking
            log.end(reasons.get(lacking.call, ""))

    try:
        bench(requests(), keep=log.row, say=log.note, left_out=reasons.__setitem__, keep_reading=log.pace)
    except UserError:
        with suppress(UserError):  # a full disk or archive may not take this event either
            log.end()  # no fault of the call
        raise
    except KeyboardInterrupt:
        log.end()  # no fault of the call
        raise
    except Exception as error:
        reason = in_one_line(error)
        log.lost(reason)
        raise WorkerLostError(reason) from error


def run_workers(
    open_log: Callable[[], SessionLog], run_worker: Callable[[], int], *, now_s: Callable[[], float], until_s: float
) -> None:
    """Run workers until one has done all, or the time is over.

    Raises UserError where a worker ends with an error of the user's, such as a full disk, or before it times anything.

    `run_worker` gives a worker's exit code, negative for the signal that ended it.
    """
    lost = 0
    while True:
        exit_code = run_worker()
        for error in (UserError, SamplesError):
            if exit_code == error.exit_code:
                raise error(f"the worker ended {_ended_by(exit_code)}; its message is above")
        log = open_log()
        if exit_code == 0 or now_s() >= until_s:
            return
        if log.progress.begun is not None:
            log.lost(_ended_by(exit_code))
        elif exit_code != LOST:
            raise UserError(f"the worker ended {_ended_by(exit_code)} before it timed anything; its message is above")
        lost += 1
        if lost >= MOST_LOST:
            log.note(f"{MOST_LOST} workers lost: the device seems broken, so no more calls are timed")
            return


def spend(
    directory: Path,
    steps: Sequence[RealStep],
    *,
    until_s: float,
    now_s: Callable[[], float],
    work: Callable[[float], int],
    run_step: Callable[[RealStep, float], dict[str, Any]],
) -> SessionLog:
    """Spend the time until `until_s` on the archive's folder: workers, then real steps; the log.

    `work` runs a worker that begins no call after the time it gets, and gives its exit code.
    """
    done = SessionLog(directory, now_s).progress.answered_steps()
    last_call_s = until_s - kept_at_the_end_s(steps, done, until_s - now_s())
    run_workers(lambda: SessionLog(directory, now_s), lambda: work(last_call_s), now_s=now_s, until_s=last_call_s)
    log = SessionLog(directory, now_s)
    run_steps(log, steps, run_step, now_s=now_s, until_s=until_s)
    return log


def call_limit_s(budget_s: float, *, compiled: bool) -> float:
    """Seconds after which a call is given up, which is left out then. One that is compiled may take a minute or two."""
    return LONGEST_CALL_S if compiled else min(LONGEST_CALL_S, max(LEAST_CALL_S, CALL_SHARE * budget_s))


def _ended_by(exit_code: int) -> str:
    if exit_code == TOO_SLOW:
        return "by its time limit"
    if exit_code >= 0:
        return f"with exit code {exit_code}"
    return f"by {signal.Signals(-exit_code).name}"


def run_steps(
    log: SessionLog,
    steps: Sequence[RealStep],
    run_step: Callable[[RealStep, float], dict[str, Any]],
    *,
    now_s: Callable[[], float],
    until_s: float,
) -> None:
    """Run the real steps that the log has no answer of, each where its time still fits; `run_step` takes its limit in seconds."""
    for step in steps:
        left_s = until_s - now_s()
        if step.name not in log.progress.answered_steps() and step.seconds <= left_s:
            log.record("step", name=step.name, result=run_step(step, left_s))


def kept_at_the_end_s(steps: Sequence[RealStep], done: Iterable[str], budget_s: float) -> float:
    """Seconds at the end of the budget in which no call is begun: for the last one, and for as many of the real steps that are not
    done, in their order, as END_SHARE has room for."""
    answered, most_s = set(done), END_SHARE * budget_s
    kept_s = min(most_s, LAST_CALL_S)
    for step in steps:
        if step.name in answered:
            continue
        if kept_s + step.seconds > most_s:
            break
        kept_s += step.seconds
    return kept_s
