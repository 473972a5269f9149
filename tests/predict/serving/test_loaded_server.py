"""Servers under loads: configs, capacity, and what moves the latencies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from predict.cli import main
from predict.cli.serving.serving import rates_of
from predict.serving import Chunk, StepBatch, step_time, step_times
from predict.serving.config import load_serving
from predict.serving.kv_cache import KeptBytes, cache_room, kept_bytes
from predict.serving.outcome import LoadedServer
from predict.serving.scheduler.request_file import read_requests
from predict.serving.scheduler.traffic import Load, traffic_of
from predict.serving.stepper import Stepper, stepper
from sampling.errors import ConfigError, InfeasibleError, UserError
from sampling.files.places import CONFIGS, SHIPPED_DATA
from sampling.store.manifest import read_manifest
from tests.predict.serving.servers import server

CONFIG = CONFIGS / "serving" / "llama3-8b-h100.yml"
SHORT = ("load.duration_s=20", "load.output=50")


def loaded(*overrides: str, model: str = "formula") -> LoadedServer:
    run = load_serving(CONFIG, [*SHORT, *overrides])
    return LoadedServer(run, stepper(run.server, model))


@pytest.mark.parametrize("config", sorted((CONFIGS / "serving").glob("*.yml")), ids=lambda path: path.stem)
def test_a_shipped_config_is_sound(config: Path) -> None:
    assert cache_room(load_serving(config).server).blocks > 0


def test_published_blocks_are_met_within_5_percent() -> None:
    # vLLM's own counts of 2026 on H100: Llama-2-7B 7,462, Llama-2-70B over 4 GPUs 31,356, Mixtral over 2 27,510
    for model, tp, blocks in (("llama2-7b", 1, 7462), ("llama2-70b", 4, 31_356), ("mixtral-8x7b", 2, 27_510)):
        assert cache_room(server(model, tp=tp)).blocks == pytest.approx(blocks, rel=0.05)


def test_layers_that_keep_less_than_all_tokens_leave_room() -> None:
    # Qwen3.5-35B-A3B over 2 GPUs: 10 of 40 layers keep 2·1·256 elements per token, 30 a state of 16 heads in fp32 and 3 tokens of 4096
    # channels; Gemma-3: 10 layers of 62 keep all tokens, the others 1024
    hybrid, sliding = (kept_bytes(server(model, tp=2)) for model in ("qwen3.5-35b-a3b", "gemma3-27b"))
    assert hybrid == KeptBytes(token=10 * 1024, window_token=0.0, sequence=30 * (16 * 128 * 128 * 4 + 4096 * 3 * 2))
    assert sliding.window_token / sliding.token == 52 / 10
    pool = cache_room(server("gemma3-27b", tp=2)).pool
    assert pool.needed(np.array([160, 4096]), 16).tolist() == [10 + 52, 256 + 333]


def test_all_faults_of_a_config_at_once() -> None:
    wrong = [
        "placement.tp=3",
        "placement.expert_parallel=true",
        "load.prompt=-4",
        "engine.name=vlm",
        "load.rat=3",
        "hardware=H1000",
    ]
    with pytest.raises(ConfigError) as error:
        load_serving(CONFIG, wrong)
    told = str(error.value)
    for part in ("placement.tp: 3", "has no experts", "load.prompt: -4", "'vllm-v1'", "load.rat", "'H1000'"):
        assert part in told
    assert len(told.splitlines()) == 6


def test_a_cache_without_room_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="no block of 16 tokens fits"):
        loaded("model=llama3-70b")


def test_latencies_grow_with_the_rate_and_the_queue_beyond_capacity() -> None:
    one = loaded("load.duration_s=60")
    capacity = one.capacity()
    assert capacity.low_per_s < capacity.median_per_s < capacity.high_per_s
    below, near, above = one.at_rates(
        [0.2 * capacity.median_per_s, 0.8 * capacity.median_per_s, 1.5 * capacity.median_per_s]
    )
    assert below.latency.e2e.mean_us < near.latency.e2e.mean_us < above.latency.e2e.mean_us
    assert (below.grows, near.grows, above.grows) == (False, False, True)
    assert (below.may_grow, above.may_grow) == (False, True)
    assert above.latency.requests_per_s == pytest.approx(capacity.median_per_s, rel=0.15)
    assert near.low.e2e.mean_us < near.latency.e2e.mean_us < near.high.e2e.mean_us


def test_capacity_is_what_a_server_does_under_overload() -> None:
    """Answers of whole length alone count, however few requests run at once."""
    for places in (1, 16):
        one = loaded(f"engine.max_num_seqs={places}", "load.duration_s=60", "load.rate=100")
        assert one.capacity().median_per_s == pytest.approx(one.as_configured().latency.requests_per_s, rel=0.03)


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_queue_that_grows_is_told_whatever_the_replicas(replicas: int) -> None:
    one = loaded(f"placement.dp={replicas}", "load.duration_s=120", "load.arrivals=constant", "engine.max_num_seqs=16")
    slow, fast = one.at_rates([share * one.capacity().median_per_s for share in (0.8, 1.1)])
    assert (slow.grows, fast.grows) == (False, True)


@pytest.mark.parametrize(
    ("changed", "shorter"),
    [
        ("load.distinct_prompts=9", "ttft"),
        ("engine.asynchronous=false", "ttft"),
        ("placement.tp=2", "tpot"),
        ("load.prompt=100", "ttft"),
    ],
)
def test_a_setting_moves_the_latencies(changed: str, shorter: str) -> None:
    before, after = (getattr(loaded(*each).under(loaded(*each).run.load).latency, shorter) for each in ((), (changed,)))
    assert after.mean_us < before.mean_us


def test_loads_of_a_kind() -> None:
    poisson, constant = (traffic_of(Load(rate=10, duration_s=100, arrivals=kind)) for kind in ("poisson", "constant"))
    assert len(constant) == 1000
    assert len(poisson) == pytest.approx(1000, abs=100)
    assert np.diff(constant.arrival_us) == pytest.approx(1e5)
    spread = traffic_of(Load(rate=10, prompt=100, spread=0.5))
    assert (spread.prompt.min(), spread.prompt.max()) == (50, 150)
    for wrong in (Load(), Load(rate=1, concurrency=1)):
        with pytest.raises(UserError, match="give one of them"):
            traffic_of(wrong)


def test_a_closed_loop_without_further_requests_keeps_its_answers() -> None:
    short, long = (traffic_of(Load(concurrency=64, requests=count, output=250)) for count in (64, 128))
    assert set(short.output.tolist()) == {250}
    assert (long.output[:64].mean(), set(long.output[64:].tolist())) == (pytest.approx(127, abs=1), {250})


def test_shared_tokens_lie_within_every_prompt() -> None:
    assert traffic_of(Load(rate=9, prompt=100, shared_tokens=100)).prompt.max() == 100
    with pytest.raises(UserError, match=r"load\.shared_tokens: 60 are more than the 50 tokens"):
        traffic_of(Load(rate=9, prompt=100, shared_tokens=60, spread=0.5))


def test_one_step_by_the_front_door() -> None:
    batch = StepBatch(chunks=(Chunk(tokens=64),), decodes=(700, 1200))
    time = step_time(batch, CONFIG, model="formula")
    assert step_times([batch] * 3, CONFIG, model="formula") == (time,) * 3
    assert time.low_us < time.median_us < time.high_us
    long = StepBatch(decodes=(8_000,) * 128)
    with pytest.raises(InfeasibleError, match="the cache has"):
        step_times([batch, long], CONFIG, model="formula")
    assert step_time(replace(long, shared_tokens=7_000 * 127), CONFIG, model="formula").median_us > time.median_us


def test_commands_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part for each in SHORT for part in ("--set", each)]
    assert main(["serving", str(CONFIG), "--model", "formula", "--sweep", "rate=2,4", "--json", *arguments]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [each["rate_rps"] for each in content["loads"]] == [2, 4]
    assert (
        main(["serving-step", str(CONFIG), "--decodes", "8x500", "--prefill", "64@32", "--model", "all", "--json"]) == 0
    )
    content = json.loads(capsys.readouterr().out)
    assert [each["model"] for each in content["models"]] == ["kernels", "formula", "published"]
    assert [bool(each["notes"]) for each in content["models"]] == [True, False, False]


def test_an_answer_says_whose_rows_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first figure, as of a training step: no rows of an H100, and those of a CPU that stand in for this one."""
    told = {CONFIG: "by stated priors", CONFIGS / "serving" / "this-machine" / "quiet.yml": "the rows of epyc-2-cores"}
    for config, words in told.items():
        assert main(["serving-step", str(config), "--decodes", "2x20"]) == 0
        before, figures, _ = capsys.readouterr().out.partition("batch  2 decodes")
        assert words in " ".join(before.split()), config
        assert figures


def test_a_sweep_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part for each in SHORT for part in ("--set", each)]
    drawn = [
        "serving",
        str(CONFIG),
        "--model",
        "formula",
        "--find-capacity",
        "-o",
        str(tmp_path / "sweep.svg"),
        *arguments,
    ]
    assert main([*drawn, "--sweep", "rate=2,200"]) == 0
    assert 'id="ttft mean"' in (tmp_path / "sweep.svg").read_text()
    assert "grows" in capsys.readouterr().out
    assert main(drawn) == 2
    assert "needs a sweep" in capsys.readouterr().err


def test_rates_of_a_sweep() -> None:
    assert rates_of("rate=2..6..2") == (2, 4, 6)
    for wrong in (
        "rat=2",
        "rate=",
        "rate=2,x",
        "rate=0",
        "rate=nan,inf",
        "rate=2,inf",
        "rate=1..9..0",
        "rate=1..9999..1",
    ):
        with pytest.raises(UserError, match="give"):
            rates_of(wrong)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["serving-step", str(CONFIG)], "--decodes: missing"),
        (["serving-step", str(CONFIG), "--decodes", "8y500"], "is not COUNTxCONTEXT"),
        (["serving-step", str(CONFIG), "--prefill", "10000000x1"], "10,000,000 requests, where the engine runs"),
        (["serving-step", str(CONFIG), "--decodes", "8x500", "--model", "kernel"], "did you mean 'kernels'"),
    ],
)
def test_a_faulty_command_is_told(arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert fault in capsys.readouterr().err


def test_a_step_that_the_cache_cannot_hold_is_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serving-step", str(CONFIG), "--decodes", "128x8000"]) == 4
    assert "blocks of 16 tokens, where the cache has" in capsys.readouterr().err


def test_rows_of_another_cpu_widen_the_interval_but_where_coefficients_are_the_servers_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = load_serving(CONFIGS / "serving" / "this-machine" / "quiet.yml")
    batch, widths = StepBatch(decodes=(20, 20)), []
    for cpu in (read_manifest(SHIPPED_DATA / "samples" / "epyc-2-cores").device["name"], "another"):
        monkeypatch.setattr("predict.prices.whose_rows.cpu_name", lambda cpu=cpu: cpu)
        shipped = stepper(run.server)
        own = Stepper(run.server, replace(shipped.coefficients, source="its own steps"))
        widths += [one.step_times([batch])[0] for one in (shipped, own)]
    like, own_like, other, own_other = (time.high_us / time.low_us for time in widths)
    assert like == own_like == pytest.approx(own_other)
    assert other > 2 * like


def test_an_unknown_profile_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serving", str(CONFIG), "--set", "profile=nowhere"]) == 3
    assert "profile nowhere: has no samples" in capsys.readouterr().err


def test_a_server_takes_as_many_nodes_as_its_gpus_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs beyond a node's stand in another; on a CPU the sampled machine counts, not the one that predicts."""
    cluster = loaded("placement.tp=16").run.server.cluster
    assert (cluster.nodes, cluster.gpus_per_node) == (2, 8)
    here = CONFIGS / "serving" / "this-machine" / "quiet.yml"
    before = load_serving(here).server.cluster
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    assert load_serving(here).server.cluster == before


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
    assert one.rate_of_slow_first_tokens(one.capacity().median_per_s) > 0
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
