"""What every command does around its work: exit codes, and a stdout that is closed."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sampling.__main__ import ROWS_KEPT
from sampling.command_line import INTERRUPTED, STDOUT_CLOSED, exit_code_of
from sampling.early_interrupt import is_command
from sampling.errors import InfeasibleError, SamplesError
from sampling.files.places import CONFIGS

ROOT = Path(__file__).resolve().parents[2]
DEMO = str(CONFIGS / "runs" / "demo.yml")
INTERRUPTED_IMPORT = """
import runpy, sys

class AtNumpy:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt

sys.meta_path.insert(0, AtNumpy())
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
"""Runs a module, and interrupts it where it imports what takes long."""
IN_WORKERS = """
from importlib import import_module
from joblib import Parallel, delayed

imported = Parallel(n_jobs=2)(delayed(import_module)("predict") for _ in range(2))
print([module.__name__ for module in imported])
"""
"""Imports a package of ours in processes that have this one's arguments."""
COMMANDS = (
    ("predict", "one-batch", DEMO),
    ("sampling", "--help"),
    ("sampling.gpu_session", "--help"),
    ("regressors", "--help"),
)


def with_closed_reader(command: Sequence[str], *, unbuffered: bool = False) -> tuple[int, str]:
    """Exit code and stderr of a module run into a pipe that nobody reads."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_closed_pipe_ends_a_command_as_it_ends_others(command: Sequence[str]) -> None:
    code, errors = with_closed_reader(command)
    assert (code, errors) == (STDOUT_CLOSED, "")


def test_a_closed_pipe_is_known_without_a_buffer_too() -> None:
    assert with_closed_reader(("predict", "one-batch", DEMO, "--json"), unbuffered=True) == (STDOUT_CLOSED, "")


def test_a_full_disk_ends_a_command_with_its_error() -> None:
    command = f"{sys.executable} -m predict one-batch {DEMO} --json > /dev/full"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: stdout: No space left on device; make room, or send the result elsewhere\n"


def test_a_file_that_may_not_grow_ends_a_command_with_its_error(tmp_path: Path) -> None:
    command = f"ulimit -f 4; {sys.executable} -m predict one-batch {DEMO} --json > {tmp_path}/out"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: stdout: File too large")


def test_a_stdout_that_was_never_open_is_no_error() -> None:
    command = f"{sys.executable} -m predict one-batch {DEMO} >&-"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_of_the_user_have_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(error: BaseException) -> int:
        raise error

    assert exit_code_of(lambda: 0) == 0
    assert exit_code_of(lambda: failing(SamplesError("none"))) == 3
    assert exit_code_of(lambda: failing(InfeasibleError("none"))) == 4
    assert exit_code_of(lambda: failing(KeyboardInterrupt()), interrupted="rows are kept") == INTERRUPTED
    assert capsys.readouterr().err == "error: none\nerror: none\nrows are kept\n"
    assert exit_code_of(lambda: failing(PermissionError(errno.EACCES, "Permission denied", "closed/run.yml"))) == 2
    assert "closed/run.yml: Permission denied; check the path and its permissions" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: 1 // 0)


def test_a_sigterm_interrupts_a_command_as_ctrl_c_does() -> None:
    """Or workers of a search would outlive it."""
    work = (
        "import os, signal, sys, time; from sampling.command_line import exit_code_of\n"
        "def work(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)\n"
        "code = exit_code_of(work); assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "interrupted\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("predict", "one-batch", DEMO), "interrupted"),
        (("regressors",), "interrupted"),
        (("sampling", "--models", "1"), ROWS_KEPT),
        (
            ("sampling.gpu_session", "--dry-run"),
            "interrupted: what was timed so far is kept; the same command goes on from here",
        ),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else "",
)
def test_ctrl_c_while_a_command_imports_its_modules_ends_it_in_words(command: Sequence[str], words: str) -> None:
    interrupted = [sys.executable, "-c", INTERRUPTED_IMPORT, *command]
    done = subprocess.run(interrupted, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", f"{words}\n")


AT_THE_FIRST_IMPORT = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "sampling.errors":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
"""
"""Interrupts what a process imports first of ours, in a module that Python runs as it starts."""


@pytest.mark.parametrize("command", ["predict", "sampling", "regressors", "sampling.gpu_session"])
def test_ctrl_c_while_a_command_starts_ends_it_in_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_THE_FIRST_IMPORT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    start = [sys.executable, "-m", command, "--help"]
    done = subprocess.run(start, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "interrupted\n")


def test_a_program_that_imports_the_packages_keeps_its_own_words_for_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import predict\nraise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, tmp_path / "own.py", "-m", "predict"], capture_output=True, text=True, check=False
    )
    assert done.stderr.endswith("KeyboardInterrupt\n") and "Traceback" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["search", "run.yml", "--set", "a=b", "--set", "c=d", "--json"]])
@pytest.mark.parametrize(
    ("started", "ours"),
    [
        (["python", "-m", "predict"], True),
        (["-m", "predict"], True),
        (["python", "-X", "dev", "-m", "regressors.active.guided_sampling"], True),
        (["python", "/usr/bin/predict"], True),
        (["python", "-m", "pytest"], False),
        (["python", "train.py"], False),
        (["python"], False),
        ([], False),
    ],
)
def test_a_command_is_known_by_how_python_was_started(started: list[str], ours: bool, arguments: list[str]) -> None:
    assert is_command([*started, *arguments], arguments) is ours


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 14])
def test_arguments_that_a_program_set_for_itself_start_no_command(count: int) -> None:
    assert not is_command(["python", "-m", "predict", "search"], ["other"] * count)


@pytest.mark.parametrize("count", [0, 7, 14])
def test_workers_import_our_packages_whatever_the_arguments_of_their_parent(count: int) -> None:
    given = [sys.executable, "-c", IN_WORKERS, *["--json"] * count]
    pool = subprocess.run(given, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (pool.stdout, pool.returncode) == ("['predict', 'predict']\n", 0), pool.stderr


def test_a_pipe_that_is_not_stdout_is_a_bug() -> None:
    def broken() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        exit_code_of(broken)
