"""Coefficients fitted to single steps of one server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predict.cli import main
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.coefficients import read_coefficients, shipped_coefficients
from predict.serving.config import load_serving
from predict.serving.fit_own_server import TimedBatch, blocks_of, fitted_to_steps
from predict.serving.kernels import kernel_features, requests_of_server
from predict.serving.server import Server
from predict.serving.stepper import Stepper
from sampling.call import make_call
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from sampling.operators.attention import DecodeAttention
from sampling.operators.gemm import Gemm
from tests.predict.serving.servers import SHORT, engine, server
from tests.predict.serving.step_batches import batches

TRUE = np.array([1.2, 1.0, 0.8, 1.0, 1.0, 150.0, 900.0, 60.0])
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
    times = features(sums_of(batches(), 0)) @ TRUE
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
    bent = features(sums_of(steps, 0)) @ TRUE * np.linspace(1, 2, len(counts)) ** 2
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


def test_the_steps_of_an_engines_log_are_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    times = kernel_features(server)(sums_of(steps, 0)) @ np.array(weights)
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
    assert main(["serving", str(config), "--coefficients", str(mine), *short]) == 0
    assert "the client's time is unknown" in capsys.readouterr().out
    for text, fault in (
        ("step_ms,decodes\n3,0", "leave out steps that do nothing"),
        ("step_ms,decodes\n3,4000", "4,000 tokens"),
        (
            "step_ms,decode_context,prefills,prefill_tokens\n3,5000,1,9",
            "decode_context: 5000 tokens in the cache of 0 decodes",
        ),
        ("step_ms,decodes,prefill_context\n3,1,70", "prefill_context: 70 tokens in the cache of 0 prefills"),
    ):
        log.write_text(text)
        assert main(arguments) == 2
        assert fault in capsys.readouterr().err
