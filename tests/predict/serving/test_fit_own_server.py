"""Coefficients fitted to the requests that one server answered: read, fitted, and distinguished from tables of many servers."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from predict.cli import main
from predict.serving.batch import Chunk, Seen, StepBatch, sums_of
from predict.serving.coefficients import read_coefficients, shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.fit_own_server import TimedBatch, blocks_of, fitted_to_steps
from predict.serving.kernels import kernel_features, requests_of_server
from predict.serving.requests import read_measured_requests
from predict.serving.server import Server
from predict.serving.simulate import serve
from predict.serving.step_model import FORMULA
from predict.serving.stepper import Stepper
from predict.serving.traffic import Load, traffic_of, with_known_prompts
from sampling.call import make_call
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from sampling.operators.attention import DecodeAttention
from sampling.operators.gemm import Gemm
from tests.predict.command import Command
from tests.predict.serving.servers import SHORT, engine, server
from tests.predict.serving.step_batches import batches

CONFIG = CONFIGS / "serving" / "llama3-8b-h100.yml"
TRUE = {"beta1": 1.4, "beta2": 0.5, "beta3": 1.05, "beta4": 80.0, "beta5": 15.0}
FIRST_MS = 9.0
HEADER = "arrival_s,prompt,output,ttft_ms,e2e_ms"


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of requests at three rates, answered by the true coefficients."""
    folder = tmp_path_factory.mktemp("answered")
    return [written(folder / f"{rate}.csv", rate) for rate in (2, 8, 16)]


def written(path: Path, rate: float) -> Path:
    server = load_serving(CONFIG).server
    one = Stepper(server, shipped_coefficients("formula"))
    table = FORMULA.table_from(server, one.features, TRUE)
    found = serve(
        server.engine, one.room.pool, table, traffic_of(Load(rate=rate, duration_s=20, prompt=600, output=80))
    )
    arrival, first, last = found.traffic.arrival_us, found.first_us, found.last_us
    times = zip(arrival, (first - arrival) / 1e3 + FIRST_MS, (last - arrival) / 1e3 + FIRST_MS, strict=True)
    rows = [f"{start / 1e6:.6f},600,80,{ttft:.4f},{e2e:.4f}" for start, ttft, e2e in times]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def fitted(*arguments: str, files: Sequence[Path]) -> int:
    return main(["serving-fit", *map(str, files), "--config", str(CONFIG), "--model", "formula", *arguments])


def test_the_servers_own_coefficients_are_found_and_used(
    answered: list[Path], tmp_path: Path, command: Command
) -> None:
    mine = tmp_path / "mine.json"
    assert fitted("--output", str(mine), files=answered) == 0
    found = read_coefficients(mine)
    assert found.asynchronous and len(found.experiments) == 3
    for name, weight in found.weights.items():
        # one server does not tell its terms apart: each interval holds the truth, and is as wide as that leaves it open
        assert weight.low <= TRUE[name] <= weight.high, name
    assert found.client.first_token_us == pytest.approx(1e3 * FIRST_MS, rel=0.1)
    # layers and weights take as long whatever the load, so that one server tells their sum alone
    server = load_serving(CONFIG).server
    true = FORMULA.table_from(server, Stepper(server, found).features, TRUE)
    own = Stepper(server, found).table
    assert own.decode_us[[4, 16, 64]] == pytest.approx(true.decode_us[[4, 16, 64]], rel=0.03)
    answer = command.json("serving", str(CONFIG), "--coefficients", str(mine), "--set", "load.duration_s=9")
    assert answer["source"].startswith("requests of") and answer["notes"] == []
    # another placement has an exchange that no request shows: a note says so, and the interval is wider
    step = ["serving-step", str(CONFIG), "--decodes", "8x500", "--coefficients", str(mine)]
    (note,) = command.json(*step, "--set", "placement.tp=2")["models"][0]["notes"]
    assert "are of llama3-8b on NVIDIA H100-SXM5-80GB, tp 1, bf16; the interval of another server " in note


def test_times_in_another_unit_make_no_coefficients(
    answered: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for path in answered:
        header, *rows = csv.reader(path.open())
        in_seconds = [[*row[:3], *(str(float(time) / 1e3) for time in row[3:])] for row in rows]
        wrong.append(tmp_path / path.name)
        csv.writer(wrong[-1].open("w")).writerows([header, *in_seconds])
    assert fitted("--output", str(tmp_path / "mine.json"), files=wrong) == 2
    assert "check the units" in capsys.readouterr().err
    assert not (tmp_path / "mine.json").exists()


def test_lifecycle_metrics_tell_the_times(tmp_path: Path) -> None:
    info = {"input_tokens": 5, "output_tokens": 3, "output_token_times": [10.02, 10.03, 10.06]}
    file = tmp_path / "lifecycle.json"
    file.write_text(json.dumps([{"start_time": 10.0, "end_time": 10.06, "info": info}]))
    found = read_measured_requests(file)
    assert found.ttft_us == pytest.approx([20_000])
    assert found.tpot_us == pytest.approx(20_000)


def test_prompts_that_a_load_has_in_common_are_known() -> None:
    plain = traffic_of(Load(rate=5, duration_s=10, prompt=100, spread=0.5))
    again = with_known_prompts(plain, Load(rate=5, distinct_prompts=4))
    assert again.group[:5].tolist() == [0, 1, 2, 3, 0]
    assert again.shared[0] == plain.prompt[::4].min()
    led = with_known_prompts(plain, Load(rate=5, shared_tokens=40))
    assert (set(led.group.tolist()), set(led.shared.tolist())) == ({0}, {40})
    assert with_known_prompts(again, Load(rate=5, shared_tokens=40)) is again
    assert np.array_equal(with_known_prompts(plain, Load(rate=5)).group, plain.group)


# Coefficients fitted to single steps of one server.

TRUE_WEIGHTS = np.array([1.2, 1.0, 0.8, 1.0, 1.0, 150.0, 900.0, 60.0])
"""Factors on groups of kernels, then µs per layer, step and request."""


def on_cpu() -> Server:
    return server(
        "tiny-llama",
        "cpu",
        settings=engine(max_num_seqs=16, max_num_batched_tokens=256),
        precision="fp32",
        kv_precision="fp32",
    )


def test_weights_of_known_steps_are_found_and_used() -> None:
    features = kernel_features(on_cpu())
    times = features(sums_of(batches(), Seen())) @ TRUE_WEIGHTS
    timed = [TimedBatch(batch=batch, time_us=float(time)) for batch, time in zip(batches(), times, strict=True)]
    found = fitted_to_steps(timed, on_cpu(), "a test")
    assert found.values["gemm"] == pytest.approx(1.2, rel=0.1)
    assert found.values["request"] == pytest.approx(60.0, rel=0.3)
    assert found.half_width < 0.03
    predicted = [one.median_us for one in Stepper(on_cpu(), found).step_times(batches())]
    assert predicted == pytest.approx(times.tolist(), rel=0.04)
    # steps of a dense model on one rank tell nothing of experts and messages, which another server may have
    assert {"moe", "all_reduce"} <= set(found.untold) and "gemm" not in found.untold
    assert "moe" in Stepper(server("mixtral-8x7b"), found).unmeasured
    assert not {"moe", "all_reduce"} & set(Stepper(server("llama3-8b"), found).unmeasured)
    of_mixture = Stepper(server("mixtral-8x7b"), found).interval_factors.high
    assert of_mixture > 1.1 * Stepper(server("llama3-8b"), found).interval_factors.high


def test_kinds_are_left_out_with_their_neighbours() -> None:
    """So the interval is that of steps beyond those that were timed: of a curve that the model does not have, not of its next point."""
    assert blocks_of([(decodes, 0) for decodes in range(40)]).tolist() == [place // 4 for place in range(40)]
    assert blocks_of([(8, tokens) for tokens in (0, 16, 128)]).tolist() == [0, 1, 2]
    counts = range(1, 16)
    features = kernel_features(on_cpu())
    steps = [StepBatch(decodes=(64,) * decodes) for decodes in counts]
    bent = features(sums_of(steps, Seen())) @ TRUE_WEIGHTS * np.linspace(1, 2, len(counts)) ** 2
    timed = [TimedBatch(batch=batch, time_us=float(time)) for batch, time in zip(steps, bent, strict=True)]
    assert fitted_to_steps(timed, on_cpu(), "a test").half_width > 0.18  # 0.16 where each is left out alone


def test_too_few_kinds_of_steps_are_refused() -> None:
    timed = [TimedBatch(batch=StepBatch(decodes=(9,)), time_us=1.0)] * 99
    with pytest.raises(UserError, match="1 kinds of steps"):
        fitted_to_steps(timed, on_cpu(), "a test")


def test_a_servers_requests_are_its_kernels_on_the_sizes_that_it_runs() -> None:
    calls = [request.call for request in requests_of_server(on_cpu())]
    assert len(set(calls)) == len(calls)
    decodes = [call for call in calls if isinstance(call, DecodeAttention)]
    assert {call.block for call in decodes} == {16}
    assert {call.batch for call in decodes} == {1, 2, 4, 8, 16}
    assert max(call.keys for call in decodes) <= 2048
    assert {call.m for call in calls if isinstance(call, Gemm)} >= {1, 16, 256}


def test_calls_of_sliced_servers_are_those_that_a_session_knows() -> None:
    calls = [request.call for request in requests_of_server(server("mixtral-8x7b", tp=2))]
    assert {make_call(call.NAME, call.fields()) for call in calls} == set(calls)
    assert "all_gather" in {call.NAME for call in calls}
    assert "custom_all_reduce" in {call.NAME for call in calls}


def test_the_steps_of_an_engines_log_are_fitted(tmp_path: Path, command: Command) -> None:
    """Steps of the shipped server with slower products, from a table to coefficients that predict them."""
    config, log, mine = CONFIGS / "serving" / "llama3-8b-h100.yml", tmp_path / "steps.csv", tmp_path / "mine.json"
    server = load_serving(config).server
    weights = [
        1.3 * value if name == "gemm" else value for name, value in shipped_coefficients("kernels").values.items()
    ]
    rows = [(decodes, 800 * decodes, tokens) for decodes in (1, 4, 16, 40, 100) for tokens in (0, 50, 500, 1500)]
    steps = [
        StepBatch(chunks=(Chunk(tokens=tokens),) if tokens else (), decodes=(800,) * decodes)
        for decodes, _, tokens in rows
    ]
    times = kernel_features(server)(sums_of(steps, Seen())) @ np.array(weights)
    table = [f"{time / 1e3:.5f},{d},{c},{int(t > 0)},{t}" for time, (d, c, t) in zip(times, rows, strict=True)]
    log.write_text("\n".join(["step_ms,decodes,decode_context,prefills,prefill_tokens", *table]))
    arguments = ["serving-fit", str(log), "--config", str(config)]
    assert main([*arguments, "--output", str(mine)]) == 0
    found = read_coefficients(mine)
    assert found.values["gemm"] == pytest.approx(weights[0], rel=0.05)
    assert (found.asynchronous, found.engines) == (True, ("vllm-v1",))
    predicted = [one.median_us for one in Stepper(server, found).step_times(steps)]
    assert predicted == pytest.approx(times.tolist(), rel=0.05)
    short = [part for each in SHORT for part in ("--set", each)]
    assert "the client's time is unknown" in command.text("serving", str(config), "--coefficients", str(mine), *short)
    log.write_text("step_ms,decodes\n3,9000")
    assert "9,000 tokens" in command.refused(*arguments)
