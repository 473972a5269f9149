"""The server of the page: on this machine alone, for whoever has the address with its token.

It serves the page, its script and its style, and answers to its settings; no other file. A request with another Host, as a page of a
foreign site that points its name at this machine would send it, or without the token is refused. So is one that takes too long to come,
and a client above the number that is served at once.
"""

from __future__ import annotations

import io
import json
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from predict.explorer.answers import Explorer, RlExplorer
from predict.explorer.page import SCRIPT, STYLE, explorer_page
from predict.kinds import RL, kind_of
from predict.ledger.training_cost import require_paid
from predict.reports.page.report import policy, scripts, style
from sampling.errors import UserError

ADDRESS = "127.0.0.1"
MOST_BYTES = 200_000
"""Size of a request's settings."""
MOST_CLIENTS = 100
"""Connections that are served at once."""
MOST_REQUEST_S = 30.0
"""Time in which the whole of a request must come, and in which its reply must be taken."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": policy(script="'self'", style="'self'", connect="'self'") + "; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


Answer = Callable[[dict[str, Any]], dict[str, Any]]


class ExplorerServer(ThreadingHTTPServer):
    """Serves one explorer under an address with a random token; port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--port: {port} cannot be used ({reason}); give another, or 0 for a free one") from None
        self.token = secrets.token_urlsafe(18)
        self.explorer = explorer
        self._places = BoundedSemaphore(MOST_CLIENTS)
        self._one_at_a_time = Lock()
        self.files: dict[str, tuple[str, Callable[[], str]]] = {
            "": ("text/html", lambda: explorer_page(explorer.first_page())),
            SCRIPT: ("text/javascript", lambda: scripts("explore")),
            STYLE: ("text/css", style),
        }
        self.answers: dict[str, Answer] = {
            "answer": explorer.answer,
            "studies": self._alone(explorer.studies),
            "search": self._alone(explorer.search),
            "written": explorer.written,
        }

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def _alone(self, answer: Answer) -> Answer:
        """An answer that uses every core by itself: the next one waits."""

        def waits(settings: dict[str, Any]) -> dict[str, Any]:
            with self._one_at_a_time:
                return answer(settings)

        return waits

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that left before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def explore(
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    port: int = 0,
    tokens: str | float | None = None,
    price: str | None = None,
) -> ExplorerServer:
    """The server of a page on which every key of a config is a control; `with` it, open its `.address` and `serve_forever()`.

    With `tokens` such as `2T`, and at a `price`, the whole job follows each change too.
    ConfigError lists every fault of the config, before there is a page; UserError for a port that cannot be used.
    """
    require_paid(tokens, price)
    explorer: Explorer
    if kind_of(config) != RL:
        explorer = Explorer(Path(config), tuple(overrides), tokens=tokens, price=price)
    elif tokens is None:
        explorer = RlExplorer(Path(config), tuple(overrides))
    else:
        raise UserError("--tokens: does not apply to an RL config; omit it")
    explorer.controls  # noqa: B018  (the faults of the config are reported here)
    server = ExplorerServer(explorer, port)
    Thread(target=explorer.warm, daemon=True).start()
    return server


class _Incoming(io.RawIOBase):
    """Bytes that a client sends, until a moment: a timeout of the socket alone would start anew with each byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.until_s = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.connection.settimeout(left_s)
        return self.connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self.incoming)

    def handle_one_request(self) -> None:
        self.incoming.until_s = time.monotonic() + MOST_REQUEST_S
        super().handle_one_request()

    def do_GET(self) -> None:
        place = self._place()
        if place in self.server.files:
            kind, text = self.server.files[place]
            self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", text())
        elif place is not None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        place = self._place()
        if place is None:
            return
        if place not in self.server.answers:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such answer")
            return
        settings = self._settings()
        if settings is None:
            return
        try:
            found = self.server.answers[place](settings)
        except Exception as error:  # a bug must not end the page, which shows it
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"a bug of ours: {type(error).__name__}: {error}")
            raise
        self._send(HTTPStatus.OK, "application/json", json.dumps(found, separators=(",", ":")))

    def _place(self) -> str | None:
        """The path below the token; None, with a refusal, for a foreign Host or origin, or another token."""
        hosts = {f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in hosts or origin not in {None, *(f"http://{host}" for host in hosts)}:
            self._refuse(HTTPStatus.FORBIDDEN, "this page answers to its own address alone")
            return None
        token, _, place = self.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(
                HTTPStatus.FORBIDDEN, "the address lacks its token; take the whole of the one that was printed"
            )
            return None
        return place

    def _settings(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"settings take {MOST_BYTES:,} bytes at most")
            return None
        try:
            settings = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            settings = None
        if not isinstance(settings, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "settings are a JSON object of key paths")
            return None
        return settings

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses what is no request in HTTP."""
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # what was sent along is not read, and must not be taken for the next request
        self._send(status, "text/plain; charset=utf-8", f"{why}\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode(errors="backslashreplace")
        self.connection.settimeout(MOST_REQUEST_S)
        self.send_response(status)
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {**HEADERS, **closing, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the address holds the token."""
