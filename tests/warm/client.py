"""A stand-in of the Python interpreter that asks the server of STEPTIME_WARM_PYTHON to be it, and ends as that does.

A process that inherits more than the standard streams is one of Python itself.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress


def main() -> int:
    # more than the standard streams and this listing, as workers of joblib get
    if len(os.listdir("/proc/self/fd")) > 4:  # noqa: PTH208
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["STEPTIME_WARM_PYTHON"])
        request = {
            "arguments": sys.argv[1:],
            "environment": dict(os.environ),
            "executable": sys.argv[0],
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib would double the time to start
            "parent": os.getppid(),
        }
        message = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(server, [message], [0, 1, 2])
        server.sendall(message[sent:])
        child = int.from_bytes(server.recv(4), "big")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(child, number))
        return int.from_bytes(server.recv(4), "big", signed=True)


if __name__ == "__main__":
    code = main()
    if code < 0:
        with suppress(OSError):  # nobody may handle a SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
