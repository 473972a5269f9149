"""The explorer answers its own page, says key by key what cannot be, and refuses everybody else."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import predict
from predict.explorer.answers import Explorer
from predict.explorer.server import MOST_BYTES, ExplorerServer
from sampling.errors import UserError
from tests.predict.command import Command

DEMO = Path("configs/runs/demo.yml")
LARGE = Path("configs/runs/llama3-70b-64xh100.yml")


@pytest.fixture(scope="module")
def server() -> Iterator[ExplorerServer]:
    with ExplorerServer(Explorer(DEMO, jobs=1)) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def ask(
    server: ExplorerServer, place: str, body: str | None = None, *, token: str | None = None, **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    path = f"/{server.token if token is None else token}/{place}"
    connection.request("GET" if body is None else "POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def answer(server: ExplorerServer, settings: dict[str, Any], what: str = "answer") -> dict[str, Any]:
    status, text = ask(server, what, json.dumps(settings))
    assert status == 200
    found: dict[str, Any] = json.loads(text)
    return found


def test_an_answer_is_that_of_one_batch_and_dp_takes_the_ranks_that_are_left(server: ExplorerServer) -> None:
    found = answer(server, {"plan.pp": 1, "batch.micro": 1})
    expected = predict.one_batch(DEMO, ["plan.pp=1", "batch.micro=1", "plan.dp=2"])
    assert found["follows"] == {"plan.dp": "2"}
    run = found["page"]["runs"][0]
    assert run["prediction"]["step_time_us"]["median"] == pytest.approx(expected.median_us)
    assert run["settings"]["plan.dp"] == 2
    written = answer(server, {"plan.pp": 1, "batch.micro": 1}, "written")
    assert written["set"] == "--set plan.pp=1 --set batch.micro=1 --set plan.dp=2"
    assert "pp: 1" in written["yaml"]
    assert "micro: 1" in written["yaml"]


def test_the_whole_job_follows_where_tokens_are_given() -> None:
    explorer = Explorer(LARGE, tokens="1T", price="2/gpu-h")
    fast, slow = (
        explorer.answer(settings)["page"]["runs"][0]["job"] for settings in ({}, {"cluster.power_limit_w": 350})
    )
    assert slow["days"]["median"] > fast["days"]["median"]
    assert slow["energy"]["total_mwh"]["median"] < fast["energy"]["total_mwh"]["median"]
    assert "job" in explorer.live
    with pytest.raises(UserError, match="--price: it needs the tokens"):
        predict.explore(DEMO, price="2/gpu-h")


def test_the_body_of_a_refused_request_is_not_the_next_request(server: ExplorerServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(
        "POST", "/x/answer", f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n"
    )
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("Connection")) == (403, "close")


def test_faults_stand_at_their_keys(server: ExplorerServer) -> None:
    faults = answer(server, {"plan.tp": 5, "precision": "fp7"})["faults"]
    assert "plan.tp" in faults
    assert "did you mean" in faults["precision"]


def test_studies_and_a_search_answer_too(server: ExplorerServer) -> None:
    found = answer(server, {}, "studies")
    assert found["run"]["heat_map"]["cells"]
    assert any(plan.get("own") for plan in found["plans"])
    plans = answer(server, {"batch.global": 1}, "search")
    assert len(plans["plans"]) == len(plans["settings"]) > 1


@pytest.mark.parametrize(
    ("place", "body", "headers", "status"),
    [
        ("", None, {"Host": "evil.example"}, 403),
        ("answer", "{}", {"Origin": "http://evil.example"}, 403),
        ("", None, {"token": "x"}, 403),
        ("answer", "{}", {"token": ""}, 403),
        ("../../etc/passwd", None, {}, 404),
        ("assets/page.js", None, {}, 404),
        ("unknown", "{}", {}, 404),
        ("answer", "[1]", {}, 400),
        ("answer", "{", {}, 400),
        ("answer", " " * (MOST_BYTES + 1), {}, 413),
    ],
)
def test_what_is_not_of_the_page_is_refused(
    server: ExplorerServer, place: str, body: str | None, headers: dict[str, str], status: int
) -> None:
    assert ask(server, place, body, **headers)[0] == status


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "/etc/passwd"),
        ("model", "../../../../etc/hosts.json"),
        ("cluster.hardware", "/tmp/x.yml"),
        ("plan.schedule", "/tmp/order.csv"),
        ("model", {"file": "/etc/shadow"}),
    ],
)
def test_a_file_outside_the_project_is_not_read(server: ExplorerServer, key: str, value: Any) -> None:
    faults = answer(server, {key: value})["faults"]
    assert "outside the project" in faults[key]


def test_a_config_with_faults_has_no_page(command: Command) -> None:
    assert "plan" in command.refused("explore", str(DEMO), "--set", "plan.tp=3")
    assert "--port" in command.refused("explore", str(DEMO), "--port", "70000")
