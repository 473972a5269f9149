"""The server of the page: on this machine alone, for whoever has the address with its token.

It serves the page and answers to its settings, and no file. A request with another Host, as a page of a foreign site that points its
name at this machine would send it, or without the token is refused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from predict.explorer.answers import Explorer
from predict.explorer.page import explorer_page
from predict.explorer.rl_answers import RlExplorer
from predict.kinds import RL, kind_of
from sampling.errors import UserError

ADDRESS = "127.0.0.1"
MOST_BYTES = 200_000
"""Size of a request's settings."""
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ExplorerServer(ThreadingHTTPServer):
    """Serves one explorer under an address with a random token; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--port: {port} cannot be used ({reason}); give another, or 0 for a free one") from None
        self.token = secrets.token_urlsafe(18)
        self.explorer = explorer
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "answer": explorer.answer,
            "studies": explorer.studies,
            "search": explorer.search,
            "written": explorer.written,
        }

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"


def explore(config: Path | str, overrides: Sequence[str] = (), *, port: int = 0) -> ExplorerServer:
    """The server of a page on which every key of a config is a control; `with` it, open its `.address` and `serve_forever()`.

    ConfigError lists every fault of the config, before there is a page; UserError for a port that cannot be used.
    """
    kind = RlExplorer if kind_of(config) == RL else Explorer
    explorer = kind(Path(config), tuple(overrides))
    explorer.controls  # noqa: B018  (the faults of the config are reported here)
    server = ExplorerServer(explorer, port)
    Thread(target=explorer.warm, daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        place = self._place()
        if place == "":
            text = explorer_page(self.server.explorer.first_page())
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", text)
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
        if not length.isdecimal() or int(length) > MOST_BYTES:
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

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # what was sent along is not read, and must not be taken for the next request
        self._send(status, "text/plain; charset=utf-8", f"{why}\n")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {**HEADERS, **closing, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the address holds the token."""
