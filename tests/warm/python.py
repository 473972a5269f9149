"""The path of a Python interpreter that starts with torch imported: for processes of tests whose start is not what is tested."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
SOCKET = "STEPTIME_WARM_PYTHON"
"""Environment variable: where the client finds its server."""
START_S = 120.0


@contextmanager
def warm_interpreter(folder: Path) -> Iterator[Path]:
    """An interpreter that asks a server, which lives as long as the block."""
    client, meeting = folder / "python", folder / "socket"
    client.write_text(f"#!{sys.executable} -IS\n" + (HERE / "client.py").read_text())
    client.chmod(0o755)
    os.environ[SOCKET] = str(meeting)
    command = [sys.executable, str(HERE / "server.py"), str(meeting)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert server.stdin is not None
    try:
        end = time.monotonic() + START_S
        while not meeting.exists():
            assert server.poll() is None and time.monotonic() < end, "the server of warm processes did not start"
            time.sleep(0.02)
        yield client
    finally:
        del os.environ[SOCKET]
        server.stdin.close()
        server.wait()
