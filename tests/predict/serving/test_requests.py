"""Requests of a file in place of a load."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.serving.config import load_serving
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import rate_of_slow_first_tokens
from predict.serving.requests import (
    at_rate_of,
    chains_of_blocks,
    in_closed_loop,
    played_again,
    read_measured_requests,
    read_requests,
)
from predict.serving.stepper import stepper
from predict.serving.traffic import Traffic, cut_short
from sampling.errors import ConfigError
from tests.predict.command import Command
from tests.predict.serving.servers import CONFIG


def served(*settings: str) -> LoadedServer:
    """The shipped server under the requests of a file."""
    run = load_serving(CONFIG, settings)
    return LoadedServer(run, stepper(run.server, "formula"))


def test_requests_of_a_file_are_served(tmp_path: Path) -> None:
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
    one = served(f"load.file={table}")
    found = one.as_configured()
    assert (found.load.prompt, len(found.served.traffic)) == (302, 30)
    assert found.served.chunk_tokens < 0.5 * by_table.prompt.sum()
    assert (
        served(f"load.file={lifecycle}", "load.shared_tokens=288").as_configured().served.chunk_tokens < 0.5 * 30 * 302
    )


def recorded(tmp_path: Path, same: bool) -> str:
    """A setting: 40 requests, of long prompts with short answers and short prompts with long answers."""
    rows = [(0.5 * place, *((1500, 20) if place % 2 else (100, 400)), place % 2 if same else "") for place in range(40)]
    table = tmp_path / f"requests-{same}.csv"
    table.write_text("arrival_s,prompt,output,prompt_id\n" + "".join(f"{a},{p},{o},{i}\n" for a, p, o, i in rows))
    return f"load.file={table}"


def test_the_capacity_of_a_file_is_that_of_its_requests(tmp_path: Path, command: Command) -> None:
    """Of their lengths, and of the prompts that they share; at rates beside it the same requests arrive faster or slower."""
    own, same = (served(recorded(tmp_path, each)) for each in (False, True))
    carried, more = (one.capacity().median for one in (own, same))
    assert more > 1.2 * carried
    slow, fast = own.at_rates([0.8 * carried, 1.25 * carried])
    assert len(slow.served.traffic) == 40
    assert fast.latency.ttft.mean_us > slow.latency.ttft.mean_us
    assert slow.served.traffic.rate == pytest.approx(0.8 * carried)
    assert rate_of_slow_first_tokens(own, carried) > 0
    sweep = ["serving", str(CONFIG), "--model", "formula", "--set", recorded(tmp_path, True), "--sweep", "rate=2,4"]
    content = command.json(*sweep)
    assert [each["rate_rps"] for each in content["loads"]] == [2, 4]
    assert [each["file"]["requests"] for each in content["loads"]] == [40, 40]
    assert [each["file"]["span_s"] for each in content["loads"]] == [19.5, 9.75]


def test_recorded_requests_are_played_again() -> None:
    """Prompts that several requests have recur; those of a single one are new each time."""
    first = Traffic(
        arrival_us=np.array([0.0, 1.0, 4.0]),
        prompt=np.array([7, 8, 8]),
        output=np.array([1, 2, 3]),
        shared=np.array([7, 8, 8]),
        group=np.array([0, 1, 1]),
    )
    again = played_again(first, 5)
    assert again.arrival_us.tolist() == [0, 1, 4, 6, 7, 10]
    assert again.group.tolist() == [-1, 1, 1] * 2
    assert again.output.tolist() == [1, 2, 3] * 2
    assert at_rate_of(first, 1e6).arrival_us.tolist() == [0, 0.5, 2]
    at_once = replace(first, arrival_us=np.zeros(3))
    assert (at_once.rate, at_rate_of(at_once, 1.0).arrival_us.tolist()) == (0, [0, 1e6, 2e6])
    loop = in_closed_loop(first, 2, 5)
    assert (loop.in_flight, len(loop)) == (2, 6)
    assert sorted(cut_short(np.full(6, 8), 4)) == [2, 4, 6, 8, 8, 8]


def test_a_closed_loop_as_an_option_stands_in_place_of_an_open_one_and_back(tmp_path: Path) -> None:
    closed = load_serving(CONFIG, ["load.concurrency=64"]).load
    assert (closed.rate, closed.concurrency) == (0, 64)
    own = tmp_path / "own.yml"
    own.write_text(CONFIG.read_text().replace("rate: 8", "concurrency: 64, requests: 300"))
    opened = load_serving(own, ["load.rate=3"]).load
    assert (opened.rate, opened.concurrency, opened.requests) == (3, 0, 0)


def test_a_file_as_an_option_stands_in_place_of_the_configs_load(tmp_path: Path) -> None:
    assert load_serving(CONFIG, [recorded(tmp_path, True)]).load.rate == pytest.approx(2.0)
    own = tmp_path / "own.yml"
    own.write_text(CONFIG.read_text().replace("rate: 8", f"file: {tmp_path / 'requests-True.csv'}, rate: 8"))
    with pytest.raises(ConfigError, match=r"load\.rate: cannot be combined with load\.file"):
        load_serving(own)
    with pytest.raises(ConfigError, match=r"load\.shared_tokens: cannot be combined with load\.file, whose prompt_id"):
        load_serving(CONFIG, [recorded(tmp_path, True), "load.shared_tokens=9"])


def test_the_results_of_a_load_generator_are_read(tmp_path: Path) -> None:
    """vLLM's own and inference-perf's tell the same requests and times; one that failed is left out."""
    bench = {
        "start_times": [100.0, 101.0, 100.5],
        "input_lens": [10, 20, 30],
        "output_lens": [3, 2, 4],
        "ttfts": [0.05, 0.06, 0.0],
        "itls": [[0.01, 0.02], [0.03], []],
        "errors": ["", "", "connection reset"],
    }
    lifecycle = [
        {
            "start_time": 100.0,
            "end_time": 100.08,
            "info": {"input_tokens": 10, "output_tokens": 3, "output_token_times": [100.05]},
        },
        {
            "start_time": 101.0,
            "end_time": 101.09,
            "info": {"input_tokens": 20, "output_tokens": 2, "output_token_times": [101.06]},
        },
        {
            "start_time": 100.5,
            "end_time": 100.5,
            "error": {"error_type": "reset"},
            "info": {"input_tokens": 30, "output_tokens": 0},
        },
    ]
    for name, content in (("bench.json", bench), ("lifecycle.json", lifecycle)):
        (tmp_path / name).write_text(json.dumps(content))
        found = read_measured_requests(tmp_path / name)
        assert found.traffic.arrival_us.tolist() == [0, 1e6]
        assert (found.traffic.prompt.tolist(), found.traffic.output.tolist()) == ([10, 20], [3, 2])
        assert found.ttft_us == pytest.approx([5e4, 6e4])
        assert found.e2e_us == pytest.approx([8e4, 9e4])


def test_a_burst_of_a_short_file_is_not_a_queue_that_grows(tmp_path: Path) -> None:
    table = tmp_path / "bursts.csv"
    rows = [f"{place // 3}.5,300,40\n" for place in range(60)]
    table.write_text("arrival_s,prompt,output\n" + "".join(rows))
    calm, swamped = served(f"load.file={table}", "engine.max_num_seqs=8").at_rates([4.0, 400.0])
    assert (calm.grows, swamped.grows) == (False, True)


def test_a_files_path_counts_from_the_configs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the config and in a setting alike, wherever the command runs; a missing file says so."""
    config = tmp_path / "mine.yml"
    config.write_text(CONFIG.read_text())
    (tmp_path / "mine.csv").write_text("arrival_s,prompt,output\n0,100,10\n1,100,10\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    by_setting = load_serving(config, ["load.file=mine.csv"])
    config.write_text(config.read_text().partition("load:")[0] + "load: {file: mine.csv}\n")
    assert load_serving(config).load == by_setting.load


TRACE = """\
{"timestamp": 27482, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 30535, "input_length": 1472, "output_length": 26, "hash_ids": [46, 47, 2366]}
{"timestamp": 30535, "input_length": 1024, "output_length": 9, "hash_ids": [46, 47]}
{"timestamp": 30600, "input_length": 700, "output_length": 9, "hash_ids": [7, 47]}
"""


def test_a_trace_of_hashed_blocks_is_a_tree_of_prompts(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    found = read_requests(path)
    assert found.arrival_us.tolist() == [0, 3_053_000, 3_053_000, 3_118_000]
    assert found.chains is not None
    # two blocks of 512 that three requests have; the fourth's second block is another one, since its first is
    assert found.chains.first.tolist() == [0, 1, 2, 3, 3]
    assert (found.chains.begins.tolist(), found.chains.ends.tolist()) == ([0], [1024])


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=2, max_size=6))
def test_a_chain_is_what_a_prompt_has_in_common_with_any_other(ids: list[list[int]]) -> None:
    blocks = [np.array(each) for each in ids]
    found = chains_of_blocks(blocks, np.array([16 * len(each) for each in ids]), 16)
    for place, own in enumerate(ids):
        others = [each for other, each in enumerate(ids) if other != place]
        common = max(
            next((at for at, (a, b) in enumerate(zip(own, each, strict=False)) if a != b), min(len(own), len(each)))
            for each in others
        )
        chain = found.segment[found.first[place] : found.first[place + 1]]
        assert (found.ends - found.begins)[chain].sum() == 16 * common
        if common:
            assert found.begins[chain[0]] == 0
            assert (found.begins[chain[1:]] == found.ends[chain[:-1]]).all()
