"""A process of the warm interpreter is, to who started it, as one of Python."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.warm.python import SOCKET

WAITS = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"


def said(*arguments: str, **variables: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    return done.returncode, done.stdout, done.stderr.splitlines()[-1] if done.stderr else ""


@pytest.mark.parametrize("warm", [False, True])
def test_arguments_environment_and_end_are_those_of_a_process_of_its_own(
    warm: bool, warm_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if warm:
        monkeypatch.setattr(sys, "executable", str(warm_python))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.custom = True\n")
    (tmp_path / "twice.py").write_text(
        "import os, sys\nprint(sys.argv[1:] * 2, sys.custom, os.getppid())\nsys.exit(7)\n"
    )
    expected = f"['a', 'a'] True {os.getpid()}\n"
    assert said(str(tmp_path / "twice.py"), "a", PYTHONPATH=str(tmp_path)) == (7, expected, "")
    assert said("-m", "twice", "a", PYTHONPATH=str(tmp_path)) == (7, expected, "")
    assert said("-c", "import sys; print(sys.argv, 'torch' in sys.modules)", "b") == (0, f"['-c', 'b'] {warm}\n", "")
    assert said("-c", "1 / 0") == (1, "", "ZeroDivisionError: division by zero")
    assert said("-c", "import sys; sys.exit('why')") == (1, "", "why")
    assert said("-c", "import os; os.kill(os.getpid(), 9)") == (-signal.SIGKILL, "", "")


@pytest.mark.usefixtures("starts_warm")
def test_a_process_that_inherits_more_than_the_streams_is_of_python_itself() -> None:
    reader, writer = os.pipe()
    command = [
        sys.executable,
        "-c",
        f"import os, sys; os.write({writer}, 'torch' in sys.modules and b'warm' or b'own')",
    ]
    subprocess.run(command, pass_fds=[writer], check=True)
    assert os.read(reader, 10) == b"own"
    os.close(reader)
    os.close(writer)


@pytest.mark.usefixtures("starts_warm")
@pytest.mark.parametrize("sent", [b"{", b"whole"])
def test_a_client_that_ends_early_leaves_the_others_theirs(sent: bytes, tmp_path: Path) -> None:
    request = {"arguments": ["-c", WAITS], "environment": dict(os.environ), "executable": sys.executable}
    whole = json.dumps({**request, "folder": str(tmp_path), "parent": os.getpid()}).encode() + b"\n"
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as client, open(os.devnull, "r+") as nothing:  # noqa: PTH123 - a device
            client.connect(os.environ[SOCKET])
            socket.send_fds(client, [whole if sent == b"whole" else sent], [nothing.fileno()] * 3)
    done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "1\n"


@pytest.mark.usefixtures("starts_warm")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        child = int(waiting.stdout.readline())
        waiting.send_signal(how)
        assert waiting.wait() == -how
    while Path(f"/proc/{child}").exists():
        time.sleep(0.01)
