"""Requests of a file in place of a load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predict.cli import main
from predict.serving.planning.highest_rate import rate_of_slow_first_tokens
from predict.serving.scheduler.request_file import read_requests
from sampling.errors import ConfigError
from tests.predict.serving.servers import CONFIG, loaded


def test_requests_of_a_file_are_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(round(10 + 0.2 * place, 3), 300 + place % 5, 40) for place in range(30)]
    table = tmp_path / "requests.csv"
    table.write_text(
        "arrival_s,prompt,output,prompt_id\n" + "".join(f"{a},{p},{o},{p}\n" for a, p, o in reversed(rows))
    )
    lifecycle = tmp_path / "per_request_lifecycle_metrics.json"
    objects = [{"start_time": a, "info": {"input_tokens": p, "output_tokens": o}} for a, p, o in rows]
    lifecycle.write_text(json.dumps(objects))
    by_table, by_lifecycle = (read_requests(path) for path in (table, lifecycle))
    assert by_table.arrival_us == pytest.approx(by_lifecycle.arrival_us)
    assert by_table.arrival_us[[0, -1]] == pytest.approx([0, 5.8e6])
    assert len(set(by_table.group.tolist())) == 5
    assert by_lifecycle.group.max() == -1
    one = loaded(f"load.file={table}", "load.shared_tokens=900")
    assert rate_of_slow_first_tokens(one, one.capacity().median_per_s) > 0
    found = one.as_configured()
    assert (found.load.prompt, len(found.served.traffic)) == (302, 30)
    assert found.served.chunk_tokens < 0.5 * by_table.prompt.sum()
    assert main(["serving", str(CONFIG), "--set", f"load.file={table}", "--sweep", "rate=3"]) == 2
    assert "remove one of the two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.csv", "arrival_s,prompt\n1,2\n", "lacks the columns output"),
        ("a.csv", "arrival_s,prompt,output\n1,-2,x\n-1,2,3\n", "request 1.prompt: -2"),
        ("a.csv", "arrival_s,prompt,output\n", "holds no requests"),
        ("a.json", '{"traces": []}', "at its top level"),
        ("a.json", '[{"spans": 1}]', "of another schema"),
        ("a.json", "arrival", "is not JSON"),
    ],
)
def test_a_faulty_request_file_is_told(name: str, text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=fault):
        read_requests(tmp_path / name)
