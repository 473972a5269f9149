"""A Python that has imported torch once, and forks for each `python …` that a client asks for.

server.py SOCKET      ends when its stdin does

A child is a fresh process with the client's arguments, environment, folder and standard streams; it sees the client's parent as
its own, ends with the client, and its end is the client's. Of libraries, it has only those of LIBRARIES already.
"""

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

LIBRARIES = (
    "pytest",
    "hypothesis",
    "yaml",
    "torch._dynamo",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
)
"""What ranks, their launchers, workers and tests import, none of it of this project, nor of what a machine may lack."""
REQUEST_BYTES = 1 << 20
OWN_PATH = list(sys.path[1:])


def serve(listener: socket.socket) -> None:
    """Answers clients until stdin ends."""
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ, "client")
    waiting.register(sys.stdin, selectors.EVENT_READ, "end")
    while True:
        for key, _ in waiting.select():
            if key.data == "end":
                return
            if waiting.get_map().get(key.fd) is not key:  # an earlier event of this turn closed it
                continue
            if key.data == "client":
                client, _ = listener.accept()
                pid = fork_for(client)
                if pid is None:
                    client.close()
                    continue
                ended = os.pidfd_open(pid)
                with suppress(OSError):
                    client.sendall(pid.to_bytes(4, "big"))
                waiting.register(ended, selectors.EVENT_READ, (client, pid))
                waiting.register(client, selectors.EVENT_READ, ended)
            elif isinstance(key.data, int):  # the client is gone: so is its child
                signal.pidfd_send_signal(key.data, signal.SIGKILL)
                waiting.unregister(key.fileobj)
            else:
                client, pid = key.data
                _, status = os.waitpid(pid, 0)
                waiting.unregister(key.fd)
                os.close(key.fd)
                with suppress(KeyError):
                    waiting.unregister(client)
                with suppress(OSError):
                    client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                client.close()


def fork_for(client: socket.socket) -> int | None:
    """The id of a child that does what the client asks for; None where the client ends before it has said all of it."""
    message, streams = request_of(client)
    pid = os.fork() if message.endswith(b"\n") else None
    if pid == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        end_after(json.loads(message))
    for stream in streams:
        os.close(stream)
    return pid


def request_of(client: socket.socket) -> tuple[bytes, list[int]]:
    """The client's message, as far as it came, and its standard streams."""
    message, streams = b"", []
    with suppress(ConnectionError):
        message, streams, _, _ = socket.recv_fds(client, REQUEST_BYTES, 3)
        while not message.endswith(b"\n") and (more := client.recv(REQUEST_BYTES)):
            message += more
    return message, streams


def end_after(request: dict[str, Any]) -> NoReturn:
    """The whole life of a child. It skips the teardown of the interpreter, which would take longer than its start."""
    code: object = 0
    try:
        become(request)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python's own end
    os._exit(code or 0)


def become(request: dict[str, Any]) -> None:
    """This child becomes the asked-for Python."""
    import torch

    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.getppid = lambda: int(request["parent"])
    open_streams()
    random.seed()
    tempfile.tempdir = None
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *OWN_PATH]
    sys.executable = request["executable"]
    importlib.invalidate_caches()
    sys.modules.pop("sitecustomize", None)
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")
    run(request["arguments"])


def open_streams() -> None:
    """Standard streams on the client's files, as Python opens them."""
    encoding = os.environ.get("PYTHONIOENCODING")
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False)


def run(arguments: list[str]) -> None:
    """`python ARGUMENTS…`; raises SystemExit as it would."""
    while arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        arguments = arguments[1:]
    if arguments[0] == "-c":
        sys.argv, code = ["-c", *arguments[2:]], arguments[1]
        sys.path.insert(0, "")
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        serve(listening)
