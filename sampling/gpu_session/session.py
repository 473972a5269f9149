"""A GPU session: workers time the plan one after the other until one ends well, then real steps run.

A worker is a process with the device; it ends where the device, the driver or a kernel fails. The call that it timed then is left
out, and the next worker goes on behind it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sampling.call import Request
from sampling.errors import SamplesError, UserError, in_one_line
from sampling.gpu_session.log import SessionLog
from sampling.gpu_session.plan import Planned
from sampling.gpu_session.steps import RealStep
from sampling.progress import Progress as Show
from sampling.store.sample import Sample

LOST = 75
"""Exit code of a worker whose device failed (EX_TEMPFAIL of sysexits.h: try again)."""
MOST_LOST = 8
"""Workers lost in one session after which the device itself is taken to be broken."""
LAST_CALL_S = 10.0
"""Time for the last call that was begun: its phases are cut short then."""
LEAVING_S = 10.0
"""Time for a worker to end after its last call: a reading of the device, and the process itself."""
END_SHARE = 0.4
"""Largest share of the budget that is kept for real steps."""


class Bench(Protocol):
    """Times requests in order on a device; hands over each row, and says what it left out and why."""

    def __call__(
        self, requests: Iterable[Request], *, keep: Callable[[Sample], None], say: Callable[[str], None]
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
    show: Show = lambda done, total, name: None,
) -> None:
    """Time what the log lacks of the plan, in order; no call is begun after `until_s`. `show` gets the progress.

    Raises WorkerLostError, with the call left out, where the bench fails.
    """
    told: list[str] = []

    def requests() -> Iterator[Request]:
        for done, each in enumerate(planned):
            lacking = log.progress.lacking(each.request)
            if lacking is None:
                continue
            if now_s() >= until_s:
                return
            told.clear()
            show(done, len(planned), f"{each.section}: {lacking.call.NAME}")
            log.begin(lacking, each.section)
            yield lacking
            # what the end of the session cut off is no fault of the call
            untimed = log.progress.lacking(lacking) and now_s() < until_s
            log.end(_reason(told) if untimed else "")

    def say(text: str) -> None:
        told.append(text)
        log.note(text)

    try:
        bench(requests(), keep=log.row, say=say)
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


def _reason(told: Sequence[str]) -> str:
    return "; ".join(told).removeprefix("left out: ") or "left out for a reason that was told before"


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


def _ended_by(exit_code: int) -> str:
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
    """Seconds at the end of the budget in which no call is begun: for the last one, and for the real steps that are not done."""
    left_s = sum(step.seconds for step in steps if step.name not in set(done))
    return min(END_SHARE * budget_s, left_s + LAST_CALL_S)
