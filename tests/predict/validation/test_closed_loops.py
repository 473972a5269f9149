"""Closed loops made by known coefficients: read, predicted, and distinguished where light would not be fast enough."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from predict.interval import Interval
from predict.serving.coefficients import Client, shipped_coefficients
from predict.serving.kv_cache import BlockPool
from predict.serving.latency import latency_of
from predict.serving.simulate import serve
from predict.serving.traffic import Load, traffic_of
from predict.validation.closed_loops import (
    ClosedLoop,
    ComparedLoop,
    closed_loop_json,
    compared_loops,
    fitted_first_token_us,
    read_closed_loops,
    without_own_version,
)
from predict.validation.compared import Compared
from sampling.errors import ConfigError
from tests.predict.serving.servers import engine, unit_table

LLAMA: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "h100_sxm",
    "backend": "vllm",
    "precision": "bf16",
}
COLUMNS = "model,gpu,backend,precision,isl,osl,concurrency,tp,ttft_ms,tpot_ms"


def row(isl: int, osl: int, tpot_ms: float, **changes: Any) -> ClosedLoop:
    return ClosedLoop(isl=isl, osl=osl, concurrency=8, ttft_ms=100.0, tpot_ms=tpot_ms, **(LLAMA | changes))


def test_a_group_that_is_faster_than_light_is_reported_and_not_judged() -> None:
    # 7 GB of weights take 2.1 ms at 3.35 TB/s
    sound, too_fast = row(64, 64, 8.0), row(4000, 100, 1.5, precision="fp8")
    compared, refused = compared_loops(
        [sound, too_fast, row(64, 64, 4.0, precision="fp8"), row(64, 64, 8.0, precision="fp6")],
        shipped_coefficients("formula"),
        lambda *_: None,
    )
    assert [bool(one.left_out) for one in compared] == [False, True, True]
    assert [one.is_too_fast for one in compared] == [False, True, False]
    assert "'fp6' is not one of" in refused[0].why
    content = closed_loop_json(compared, refused)
    assert content["summary"]["rows"] == 1
    assert content["summary"]["tpot"] == pytest.approx(abs(compared[0].tpot.predicted.median / 8000 - 1))
    assert content["by_group"][sound.group]["coverage"] == compared[0].tpot.covered


def test_rows_are_judged_by_the_interval_that_users_get() -> None:
    """A row that does not state its graphs is a server with the engine's defaults."""
    rows = [row(64, 64, 25.0, cuda_graphs=mode) for mode in ("unknown", "on", "off")]
    (unknown, graphs, eager), _ = compared_loops(rows, shipped_coefficients("formula"), lambda *_: None)
    assert [one.tpot.covered for one in (unknown, graphs, eager)] == [False, False, True]
    assert unknown.tpot.predicted == graphs.tpot.predicted


def test_a_row_becomes_a_server() -> None:
    mixture = row(64, 64, 1.0, model="Qwen/Qwen3-235B-A22B-FP8", precision="fp8", tp=2, moe_tp=1, moe_ep=8)
    assert (mixture.dp, mixture.in_flight, mixture.server().ep) == (4, 8, 8)
    published = [
        row(64, 64, 1.0, model=model, precision="fp8", tp=8).server().placement
        for model in ("Qwen/Qwen3-235B-A22B-FP8", "deepseek-ai/DeepSeek-V3", "nvidia/Qwen3-32B")
    ]
    assert [(one.precision, one.kv_precision) for one in published] == [("fp8_block", "bf16")] * 2 + [("fp8", "fp8")]
    others = row(64, 64, 1.0, model="deepseek-ai/DeepSeek-V3", precision="fp8", backend="sglang").formats
    assert others == {"precision": "fp8", "kv_precision": "bf16"}
    assert row(64, 64, 1.0, precision="fp8").server().placement.kv_precision == "fp8"
    four_bits = [
        row(64, 64, 1.0, gpu="b200_sxm", model=model, precision="fp4").server().placement
        for model in (LLAMA["model"], "openai/gpt-oss-120b")
    ]
    assert [(one.precision, one.quantised) for one in four_bits] == [("nvfp4", "layers"), ("mxfp4", "experts")]
    assert not row(64, 64, 1.0).server().engine.prefix_caching


def test_replicas_of_inferencemax_are_on_its_own_gpus() -> None:
    """Its table has them on the square of these; vLLM's scripts start one replica over all of them."""
    changes: dict[str, Any] = {
        "model": "MiniMaxAI/MiniMax-M2.5",
        "precision": "fp8",
        "tp": 4,
        "attention_dp": 4,
        "moe_ep": 16,
    }
    one = row(1024, 1024, 1.0, **changes)
    placed = one.server().placement
    assert (placed.tp, placed.dp, placed.expert_parallel, one.in_flight) == (4, 1, True, 32)
    changes |= {"model": "deepseek-ai/DeepSeek-V3", "tp": 1, "attention_dp": 64, "moe_tp": 8, "moe_ep": 8}
    several = row(1024, 1024, 1.0, gpu="h200_sxm", **changes | {"backend": "trtllm"})
    placed = several.server().placement
    assert (placed.tp, placed.dp, placed.expert_parallel, several.in_flight) == (1, 8, True, 64)
    no_square = row(1024, 1024, 1.0, gpu="h200_sxm", **changes | {"attention_dp": 8})
    assert (no_square.gpus, no_square.dp) == (8, 8)


@pytest.mark.parametrize(
    ("model", "gpu", "graphs"),
    [
        ("MiniMaxAI/MiniMax-M2.5", "h200_sxm", 512),
        ("MiniMaxAI/MiniMax-M2.5", "b300_sxm", 2048),
        ("meta-llama/Llama-3.1-70B", "b200_sxm", 0),
    ],
)
def test_graphs_of_prompts_are_those_of_the_scripts(model: str, gpu: str, graphs: int) -> None:
    server = row(1024, 1024, 1.0, model=model, gpu=gpu, precision="fp8", tp=4).server()
    assert server.engine.prefill_graph_tokens == graphs
    if graphs == 2048:
        assert (server.engine.max_num_batched_tokens, server.placement.kv_precision) == (2048, "fp8")


@pytest.mark.parametrize(
    ("gpu", "lengths", "concurrency", "interval"),
    [
        ("b200_sxm", (1024, 1024), 8, 10),
        ("b200_sxm", (1024, 8192), 16, 30),
        ("h200_sxm", (1024, 1024), 64, 1),
        ("b200_sxm", (1000, 100), 64, 1),
    ],
)
def test_engines_start_as_the_sources_of_the_rows_start_them(
    gpu: str, lengths: tuple[int, int], concurrency: int, interval: int
) -> None:
    """SGLang looks for new requests every few steps in InferenceMAX's loops on Blackwell; TensorRT-LLM's steps have room for one prompt."""
    one = replace(row(*lengths, 1.0, gpu=gpu, backend="sglang"), concurrency=concurrency)
    assert one.server().engine.recv_interval == interval
    settings = replace(one, model="deepseek-ai/DeepSeek-V3", backend="trtllm").server().engine
    assert settings.max_num_batched_tokens == lengths[0] + concurrency + 1500
    assert not settings.chunked_prefill


@pytest.mark.parametrize(
    ("lengths", "tp", "steps"), [((1024, 1024), 4, 20), ((1024, 1024), 8, 0), ((1024, 8192), 4, 0)]
)
def test_prompts_of_dense_models_are_gathered_where_their_scripts_do_so(
    lengths: tuple[int, int], tp: int, steps: int
) -> None:
    settings = row(*lengths, 1.0, gpu="b200_sxm", backend="trtllm", tp=tp).server().engine
    assert (settings.batch_wait_steps, settings.max_num_batched_tokens) == (steps, 16_384)


def test_an_engine_starts_as_the_version_of_the_row_does() -> None:
    versions = [row(64, 64, 1.0, gpu="h200_sxm", backend_version=version) for version in ("0.12.0", "0.19.0")]
    assert [one.server().engine.expert_alignment for one in versions] == [128, 1]


def test_a_version_is_judged_by_a_figure_that_the_others_have() -> None:
    """Each row is a first token of 300 ms predicted with 100 of SGLang's own; those of 0.5.9 took 50 ms more, those of 0.5.6 150."""
    found = [
        ComparedLoop(
            row=row(64, 64, 8.0, backend="sglang", backend_version=version),
            tpot=Compared(predicted=Interval.exactly(8e3), measured=8e3),
            ttft=Compared(predicted=Interval.exactly(300e3), measured=300e3 + late_us),
            bound_us=0.0,
            first_token_us=100e3,
        )
        for version, late_us in (("0.5.9", 50e3), ("0.5.9", 50e3), ("0.5.6", 150e3))
    ]
    # 150 and 250 ms are left: the weight of one that took 350 ms is the larger one
    assert fitted_first_token_us([found[0], found[2]]) == 150e3
    alike = replace(found[0], row=row(64, 64, 8.0), first_token_us=0.0)
    moved = without_own_version([*found, alike])
    assert [one.first_token_us for one in moved] == [250e3, 250e3, 150e3, 0.0]
    assert [one.ttft.predicted.median for one in moved if one.ttft] == [450e3, 450e3, 350e3, 300e3]
    by_version = closed_loop_json(found, [])["by_version"]
    assert by_version["sglang 0.5.9"]["ttft"] == pytest.approx(450 / 350 - 1)
    assert by_version["all"]["rows"] == 3


def test_faults_of_the_table_are_reported_at_once(tmp_path: Path) -> None:
    assert read_closed_loops(tmp_path) == []
    line = ",".join([*LLAMA.values(), "64", "{}", "8.0", "1.0", "90.5", "{}"])
    (tmp_path / "serving_concurrency.csv").write_text(
        "\n".join([COLUMNS, line.format("64.0", 8.5), line.format(1, "x")])
    )
    with pytest.raises(ConfigError) as error:
        read_closed_loops(tmp_path)
    assert [fault.split(": ")[1] for fault in str(error.value).splitlines()] == ["row 2.osl", "row 2.tpot_ms"]


def test_a_staggered_loop_is_steady_from_the_start() -> None:
    # 4 in flight, each 1 chunk of 8 tokens (9 µs) and 15 decodes: a decode waits for the 3 other prompts once
    load = Load(concurrency=4, prompt=8, output=16, requests=200, start="staggered")
    served = serve(engine(), BlockPool(blocks=100), unit_table(), traffic_of(load))
    found = latency_of(served, Client())
    starts = np.sort(served.start_us)[20:]
    assert np.diff(starts).min() > 1.0  # none join together
    assert found.tpot.mean_us == pytest.approx(1 + 3 * 8 / 15, rel=0.05)
