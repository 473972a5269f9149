"""Workers that end in every way, and the commands of real steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sampling import gpu_session as front
from sampling.call import Request
from sampling.errors import ConfigError, SamplesError, UserError
from sampling.files.places import CONFIGS
from sampling.gpu_session import main
from sampling.operators.memory_bound import Stream
from sampling.session import gpu_run as steps
from sampling.session.archive import SessionLog
from sampling.session.gpu_run import (
    LAST_CALL_S,
    LEAVING_S,
    LOST,
    TOO_SLOW,
    RealStep,
    call_limit_s,
    kept_at_the_end_s,
    read_steps,
    run_step,
    run_steps,
    run_workers,
)
from sampling.session.gpu_worker import WorkerSettings, require_own
from sampling.session.rehearsal import FakeClock
from sampling.timing.timer import LONGEST_CALL_S

COPY = Request(call=Stream(dtype="bf16", size_bytes=4096), phases=("forward",))


def run(directory: Path, *ends: int, begins: bool = True) -> SessionLog:
    """Workers that begin a call, unless asked not to, and end with these exit codes."""
    codes: Iterator[int] = iter(ends)

    def worker() -> int:
        code = next(codes)
        if begins and code:
            SessionLog(directory, lambda: 0.0).begin(COPY, "probes")
        return code

    run_workers(lambda: SessionLog(directory, lambda: 0.0), worker, now_s=lambda: 0.0, until_s=1.0)
    assert list(codes) == []
    return SessionLog(directory, lambda: 0.0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(-signal.SIGSEGV, "by SIGSEGV"), (-signal.SIGKILL, "by SIGKILL"), (1, "exit code 1"), (TOO_SLOW, "time limit")],
)
def test_the_call_with_which_a_worker_ends_is_left_out(code: int, reason: str, tmp_path: Path) -> None:
    log = run(tmp_path, code, 0)
    assert reason in log.progress.left_out[COPY.call]
    assert log.progress.lacking(COPY) is None


def test_a_worker_that_lost_its_device_has_reported_why_itself(tmp_path: Path) -> None:
    assert run(tmp_path, LOST, 0, begins=False).progress.left_out == {}


@pytest.mark.parametrize(
    ("code", "error", "begins"), [(1, UserError, False), (2, UserError, True), (3, SamplesError, True)]
)
def test_a_worker_that_cannot_start_or_has_an_error_of_the_users_ends_the_session_and_no_call_is_at_fault(
    code: int, error: type[UserError], begins: bool, tmp_path: Path
) -> None:
    with pytest.raises(error, match="its message is above") as caught:
        run(tmp_path, code, begins=begins)
    assert caught.value.exit_code == (3 if code == 3 else 2)
    assert SessionLog(tmp_path, lambda: 0.0).progress.left_out == {}


class HungWorker:
    """The process of a worker that begins `calls` and never ends by itself."""

    calls: Iterator[Path]

    def __init__(self, *_: object, **__: object) -> None:
        self.returncode: int | None = None

    def __enter__(self) -> HungWorker:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to wait for."""

    def poll(self) -> int | None:
        for directory in self.calls:
            SessionLog(directory, lambda: 0.0).begin(COPY, "probes")
        return self.returncode

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL


@pytest.mark.parametrize(
    ("until_s", "calls", "killed_s", "code"),
    [
        (30.0, 1, 30.0 + LAST_CALL_S + LEAVING_S, -signal.SIGKILL),
        (10 * LONGEST_CALL_S, 0, LONGEST_CALL_S, TOO_SLOW),
        (10 * LONGEST_CALL_S, 1, 60.0, TOO_SLOW),
    ],
    ids=["after the session", "at its start", "in a call"],
)
def test_a_worker_that_hangs_is_killed_and_none_outlives_its_session(
    until_s: float, calls: int, killed_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HungWorker, "calls", iter([tmp_path] * calls), raising=False)
    clock = FakeClock()
    monkeypatch.setattr(front, "time", SimpleNamespace(monotonic=clock, sleep=clock.pass_s))
    monkeypatch.setattr("sampling.gpu_session.subprocess.Popen", HungWorker)
    settings = WorkerSettings(
        out=str(tmp_path), hardware="", calls="", models=0, compiled=False, timer="quick", until_s=until_s, token=""
    )
    assert front.start_worker(settings, tmp_path, 0, 60.0) == code
    assert clock() == pytest.approx(killed_s, abs=1.0)


@pytest.mark.parametrize(
    ("minutes", "compiled", "limit_s"),
    [(1, False, 30.0), (10, False, 60.0), (90, False, LONGEST_CALL_S), (1, True, LONGEST_CALL_S)],
)
def test_one_call_takes_a_tenth_of_the_budget_at_most(minutes: float, compiled: bool, limit_s: float) -> None:
    assert call_limit_s(60 * minutes, compiled=compiled) == limit_s


@pytest.mark.parametrize(
    ("budget_s", "done", "kept_s"),
    [
        (600, (), LAST_CALL_S + 180),
        (600, ("1",), LAST_CALL_S + 180),
        (600, ("1", "2", "3"), LAST_CALL_S + 60),
        (90, (), LAST_CALL_S),
        (10, (), 4.0),
    ],
)
def test_time_is_kept_for_whole_steps_alone(budget_s: float, done: tuple[str, ...], kept_s: float) -> None:
    steps = [step("", name=f"{number}", seconds=60.0) for number in range(1, 5)]
    assert kept_at_the_end_s(steps, done, budget_s) == kept_s


def test_a_session_without_a_gpu_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "1", "--out", str(tmp_path / "archive")]) == 2
    assert "torch finds no GPU" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("hardware", "device", "refused"),
    [
        ("h200", "NVIDIA H200", False),
        ("h200", "NVIDIA B200", True),
        ("h200", "NVIDIA X1", False),
        ("cpu", "EPYC", False),
    ],
)
def test_rows_are_not_kept_under_another_devices_name(hardware: str, device: str, refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigError, match="--hardware: 'h200', and this machine has 'b200'"):
            require_own(hardware, device)
    else:
        require_own(hardware, device)


def step(code: str, **changes: object) -> RealStep:
    values = {"name": "step", "module": "timeit", "arguments": ("-n1", "-r1", code), "seconds": 1.0}
    return RealStep(**{**values, **changes})  # type: ignore[arg-type]


def answer(printed: str) -> str:
    """Code that prints this alone and ends."""
    return f"import os; print({printed!r}, flush=True); os._exit(0)"


@pytest.mark.parametrize(
    ("asked", "limit_s", "found"),
    [
        (step(answer('{"median_ms": 3}')), 60, {"median_ms": 3}),
        (step(answer('"{hardware}"')), 60, {"answer": "h200"}),
        (step(answer("hello")), 60, {"error": "did not print JSON"}),
        (step("", module="no_such_module"), 60, {"error": "there is no module no_such_module"}),
        (step("import time; time.sleep(60)"), 0.5, {"error": "was not done after 0.5 s"}),
        (step("import os; os._exit(4)"), 60, {"error": "exit code 4: "}),
    ],
)
def test_a_step_gives_its_answer_or_why_it_has_none(asked: RealStep, limit_s: float, found: dict[str, object]) -> None:
    assert run_step(asked, limit_s, hardware="h200") == found


def test_a_step_that_failed_is_tried_again_and_one_that_answered_is_not(tmp_path: Path) -> None:
    asked, results = step(""), [{"error": "was not done after 9 s"}, {"median_ms": 3}]
    for _ in range(3):
        log = SessionLog(tmp_path, lambda: 0.0)
        run_steps(log, [asked], lambda each, limit_s: results.pop(0), now_s=lambda: 0.0, until_s=60.0)
    assert log.progress.steps == {"step": {"median_ms": 3}}
    assert results == []


def test_a_long_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_ANSWER_BYTES", 10)
    assert "more than the 10" in run_step(step(answer('{"a": "long answer"}')), 60, hardware="")["error"]


def test_the_shipped_steps_name_runs_that_are_there() -> None:
    shipped = read_steps(None, on_cpu=False)
    assert len(shipped) >= 8
    assert read_steps(None, on_cpu=True) == ()
    for each in shipped:
        assert (CONFIGS.parent / each.arguments[1]).is_file()
