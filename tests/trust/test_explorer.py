"""Clients that ask the explorer for what it must refuse, all at once, or slowly; `python -m tests.trust.explorer` tries more of them."""

import socket
import time
from collections.abc import Iterator
from threading import Thread

import pytest

from predict.explorer import server as explorer_server
from predict.explorer.answers import Explorer
from predict.explorer.server import ExplorerServer
from tests.trust.explorer import CONFIG, Address, ask, at_once, leaving, refusals, slow_bodies, tried


@pytest.fixture(scope="module")
def server() -> Iterator[ExplorerServer]:
    with ExplorerServer(Explorer(CONFIG, jobs=1)) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def address(server: ExplorerServer) -> Address:
    return Address.of(server.address)


def test_what_must_be_refused_is(address: Address, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [tried(address, refusal) for refusal in refusals(address)]
    assert [wrong for row in rows for wrong in row.wrong] == []
    assert "Traceback" not in capfd.readouterr().err


def test_fifty_clients_at_once_have_the_answers_of_one(address: Address) -> None:
    row = at_once(address, 50, 2, name="50 clients")
    assert list(row.wrong) == []
    assert len(row.replies) == 100


def test_slow_bodies_end_and_others_are_answered_meanwhile(
    address: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explorer_server, "MOST_REQUEST_S", 2.0)
    slow, meanwhile = slow_bodies(address, 20, 2.0)
    assert slow.wrong == [] and meanwhile.wrong == []
    assert max(reply.seconds for reply in slow.replies) < 10
    assert leaving(address, 20).wrong == []
    assert "Traceback" not in capfd.readouterr().err


def test_more_clients_than_are_served_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer_server, "MOST_CLIENTS", 1)
    with ExplorerServer(Explorer(CONFIG, jobs=1)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = Address.of(server.address)
        with socket.create_connection(("127.0.0.1", address.port)):
            deadline = time.monotonic() + 10
            while (status := ask(address, address.request()).status) != 503 and time.monotonic() < deadline:
                pass
        assert status == 503
        server.shutdown()


def test_no_reply_allows_an_inline_script(server: ExplorerServer, address: Address) -> None:
    page = ask(address, address.request("", None))
    assert page.status == 200
    assert b"<style" not in page.body and b" style=" not in page.body and b"onerror" not in page.body
    assert page.body.count(b"<script") == 2  # its data, and the file that it names
    assert ask(address, address.request("explore.js", None)).status == 200
    assert ask(address, address.request("page.css", None)).status == 200
