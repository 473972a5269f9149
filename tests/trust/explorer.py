"""Clients that ask the explorer for what it must refuse, all at once, or slowly: `python -m tests.trust.explorer`."""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.trust.table import command, show

CONFIG = Path("configs/runs/demo.yml")
LARGE_BYTES = 50_000_000
MARKUP = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
RESET = 0
"""Stands for the status of a connection that ended without a reply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """The place of an explorer."""

    port: int
    token: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        assert parts.port
        return cls(port=parts.port, token=parts.path.strip("/"))

    def request(
        self,
        place: str = "answer",
        body: bytes | None = b"{}",
        *,
        method: str = "",
        token: str | None = None,
        path: str | None = None,
        **headers: str,
    ) -> bytes:
        """A request in bytes: a POST of the body, or a GET where it is None. `headers` replace those of a page; '' leaves one out."""
        target = path if path is not None else f"/{self.token if token is None else token}/{place}"
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        given |= {} if body is None else {"Content-Length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method or ('GET' if body is None else 'POST')} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The status of a reply, its body, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float


def ask(address: Address, request: bytes, *, pause_s: float = 0.0) -> Reply:
    """The reply to a request; with a pause, its bytes are sent one by one."""
    begun = time.perf_counter()
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", address.port), timeout=60) as connection:
            try:
                for piece in [request] if not pause_s else [request[at : at + 1] for at in range(len(request))]:
                    connection.sendall(piece)
                    time.sleep(pause_s)
            except OSError:
                pass  # it was refused before it was sent; the reply may be there all the same
            while piece := connection.recv(1 << 16):
                received += piece
    except OSError:
        pass
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if head.startswith(b"HTTP/") else RESET
    return Reply(status=status, body=body, seconds=time.perf_counter() - begun)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Requests that all have one of some statuses."""

    name: str
    requests: Sequence[bytes]
    statuses: tuple[int, ...]


PATHS = (
    *("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "....//etc/passwd", "page.css/../../server.py"),
    *("assets/page.js", "./", "%00"),
)
BODIES = (
    *(b"", b"{", b"[1]", b"null", b"1", b'"x"', b"\xff\xfe{}", b'{"x": 1e'),
    *(b"[" * 100_000, b'{"a":' * 30_000, b"9" * 6000),
)
LENGTHS = ("", "-1", "x", "1" * 5000, "²", "0x10", "200001", "9" * 30)
METHODS = ("PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "CONNECT", "<b>", "\x1b[2J")
NOISE = (
    *(b"\x00" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n"),
    *(b"GET / HTTP/9.9\r\n\r\n", b"a b c d e\r\n\r\n"),
)
KEYS = ("model", "plan.tp", "cluster.hardware", "plan.schedule", MARKUP, "__class__", "\ud800", "rl")
VALUES: tuple[object, ...] = (
    *(MARKUP, "/etc/passwd", "../" * 30 + "etc/shadow", "\x1b[31m", "a\0b", "\ud800", "x" * 100_000),
    *(10**400, -1, [], {}),
)


def refusals(address: Address) -> Iterator[Refusal]:
    """Requests that have no answer, and those whose answer is a fault beside its key."""
    yield from _of_strangers(address)
    yield from _malformed(address)
    request = address.request
    places = [request(each, None) for each in PATHS] + [request(each) for each in ("", "unknown", "__init__", "token")]
    yield Refusal(name="traversal, and places that there are not", requests=places, statuses=(404,))
    faults = [request(body=json.dumps({key: value}).encode()) for key in KEYS for value in VALUES]
    yield Refusal(name="markup, paths and odd values as settings", requests=faults, statuses=(200,))
    large = [request(body=b" " * LARGE_BYTES)]
    yield Refusal(name="50 MB", requests=large, statuses=(413, RESET))


def _of_strangers(address: Address) -> Iterator[Refusal]:
    """Requests from elsewhere, or without the token."""
    request, port, token = address.request, address.port, address.token
    hosts = ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", "")
    yield Refusal(name="foreign or no Host", requests=[request(Host=each) for each in hosts], statuses=(403,))
    origins = ("http://evil.example", "https://127.0.0.1", "null", f"http://127.0.0.1:{port}.evil.example")
    yield Refusal(name="foreign Origin", requests=[request(Origin=each) for each in origins], statuses=(403,))
    tokens = ("", "x", token[:-1], token + "x", token.swapcase(), "%00", "é")
    yield Refusal(name="no token or another", requests=[request(token=each) for each in tokens], statuses=(403,))


def _malformed(address: Address) -> Iterator[Refusal]:
    """Requests that are not HTTP, or not as the page makes them."""
    request = address.request
    yield Refusal(name="malformed JSON", requests=[request(body=each) for each in BODIES], statuses=(400,))
    chunked = request(Content_Length="", Transfer_Encoding="chunked")
    sizes = [*(request(Content_Length=each) for each in LENGTHS), chunked]
    yield Refusal(name="no length, or one that cannot be", requests=sizes, statuses=(413,))
    methods = [request(method=each) for each in METHODS]
    yield Refusal(name="other methods", requests=methods, statuses=(501, 400))
    long = [request(path="/" + "a" * 70_000), request(X="y" * 70_000), request(**{f"X{at}": "y" for at in range(200)})]
    yield Refusal(name="lines and headers without end", requests=long, statuses=(414, 431, RESET))
    yield Refusal(name="no HTTP at all", requests=NOISE, statuses=(400, 403, 505, RESET))


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A line of the table: a trial, its requests, their statuses or what was wrong, and their latency."""

    name: str
    replies: Sequence[Reply]
    wrong: Sequence[str] = ()

    @property
    def cells(self) -> list[object]:
        seconds = sorted(each.seconds for each in self.replies)
        statuses = sorted({each.status for each in self.replies})
        said = ", ".join("closed" if each == RESET else str(each) for each in statuses)
        held = "; ".join(self.wrong[:3]) if self.wrong else "yes"
        return [
            self.name,
            len(seconds),
            said,
            f"{1e3 * statistics.median(seconds):.0f}",
            f"{1e3 * seconds[-1]:.0f}",
            held,
        ]


def tried(address: Address, refusal: Refusal) -> Row:
    """The row of requests that must be refused, and of none of which the answer holds markup of theirs."""
    replies = [ask(address, request) for request in refusal.requests]
    wrong = [
        f"{request[:80]!r}: {reply.status}"
        for request, reply in zip(refusal.requests, replies, strict=True)
        if reply.status not in refusal.statuses or (reply.status == 200 and b'"faults"' not in reply.body)
    ]
    return Row(name=refusal.name, replies=replies, wrong=wrong)


def at_once(address: Address, clients: int, answers: int, *, name: str) -> Row:
    """Clients that each change a setting some times, beside one another; each answer must be that of one client alone."""
    requests = [address.request(body=json.dumps({"batch.micro": size}).encode()) for size in (1, 2, 4)]
    alone = [_step(ask(address, request)) for request in requests]

    def client(number: int) -> list[tuple[int, Reply]]:
        turns = [(number + turn) % len(requests) for turn in range(answers)]
        return [(turn, ask(address, requests[turn])) for turn in turns]

    with ThreadPoolExecutor(clients) as pool:
        replies = [reply for own in pool.map(client, range(clients)) for reply in own]
    wrong = [f"{reply.status}: another answer" for turn, reply in replies if _step(reply) != alone[turn]]
    return Row(name=name, replies=[reply for _, reply in replies], wrong=wrong)


def _step(reply: Reply) -> object:
    try:
        return json.loads(reply.body)["page"]["runs"][0]["prediction"]["step_time_us"]
    except (ValueError, KeyError):
        return reply.status


def slow_bodies(address: Address, clients: int, most_s: float) -> tuple[Row, Row]:
    """Clients that send a byte now and then, who are cut off; and one that asks meanwhile, who is answered."""
    slow = address.request(body=b" " * 2000)
    with ThreadPoolExecutor(clients) as pool:
        waiting = [pool.submit(ask, address, slow, pause_s=most_s / 1000) for _ in range(clients)]
        time.sleep(most_s / 10)
        meanwhile = at_once(address, 1, 10, name=f"one client beside {clients} slow ones")
        replies = [each.result() for each in waiting]
    late = [f"{each.status} after {each.seconds:.0f} s" for each in replies if each.status != RESET]
    return Row(name=f"{clients} bodies of a byte now and then", replies=replies, wrong=late), meanwhile


def leaving(address: Address, clients: int) -> Row:
    """Clients that leave before their answer; the next one is answered."""

    def left(_: int) -> Reply:
        with socket.create_connection(("127.0.0.1", address.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            connection.sendall(address.request())
        return Reply(status=RESET, body=b"", seconds=0.0)

    with ThreadPoolExecutor(clients) as pool:
        replies = list(pool.map(left, range(clients)))
    after = ask(address, address.request())
    wrong = [] if after.status == 200 else [f"the next one has {after.status}"]
    return Row(name=f"{clients} clients that leave before their answer", replies=[*replies, after], wrong=wrong)


def trials(address: Address, *, clients: int, answers: int, most_s: float) -> Iterator[Row]:
    """Every trial of one explorer, that allows a request `most_s`."""
    yield at_once(address, 1, 20, name="one client")
    yield at_once(address, clients, answers, name=f"{clients} clients at once")
    yield from slow_bodies(address, clients, most_s)
    yield leaving(address, clients)
    yield from (tried(address, refusal) for refusal in refusals(address))


def parser() -> argparse.ArgumentParser:
    return command(__doc__, cases=50)


def main() -> None:
    from predict.explorer.server import MOST_REQUEST_S

    options = parser().parse_args()
    started = [sys.executable, "-m", "predict", "explore", str(CONFIG)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stderr
        address = Address.of(server.stdout.readline().strip())
        rows = list(trials(address, clients=options.cases, answers=4, most_s=MOST_REQUEST_S))
        peak = next(line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if "VmHWM" in line)
        server.terminate()
        said = server.stderr.read()
    requests = sum(len(row.replies) for row in rows)
    note = (
        f"{requests} requests, {said.count('Traceback')} tracebacks, most memory of the server "
        f"{int(peak.split()[1]) / 1e3:.0f} MB; every reply has a content security policy without inline scripts or styles."
    )
    headings = ("trial", "requests", "status", "median, ms", "worst, ms", "held")
    show("explorer", headings, [row.cells for row in rows], note, keep=options.keep)
    sys.exit(any(row.wrong for row in rows) or "Traceback" in said)


if __name__ == "__main__":
    main()
