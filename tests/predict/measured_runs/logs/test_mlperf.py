"""Logs of MLPerf: a time per step, per block or a rate, and what is said of the run."""

import json
from pathlib import Path

import pytest

from tests.predict.measured_runs.logs.log_text import log, steps_us


def event(key: str, value: object, **metadata: object) -> str:
    content = {
        "namespace": "",
        "time_ms": 1759861176423,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(content)}"


BENCHMARK = [
    event("submission_benchmark", "llama31_8b"),
    event("submission_platform", "4xNVIDIA GB200"),
    event("global_batch_size", 16),
    event("gradient_accumulation_steps", 1.0),
    event("max_sequence_length", 8192),
]


def test_mlperf_states_steps_or_blocks_and_never_both(tmp_path: Path) -> None:
    of_step = [event("tracked_stats", {"train_step_time": 0.187, "loss": 3.0}, step=31.0, samples_count=512.0)]
    validation = [event("tracked_stats", {"validation_step_time": 0.046}, step=24, samples_count=400)]
    of_block = [event("tracked_stats", {"train_step_time": 0.2}, samples_count=1600)]
    read = log(tmp_path, "\n".join(["noise", *BENCHMARK, *of_step, *validation, *of_block]))
    assert steps_us(read) == [(32, 187_000)]
    assert (read.steps[0].batch, read.steps[0].seq_len, read.date) == (16, 8192, "2025-10-07T18:19:36")
    blocks = [*BENCHMARK, *of_block, *of_block]
    assert steps_us(log(tmp_path, "\n".join(blocks))) == [(100, 200_000), (200, 200_000)]


def test_mlperf_rates_are_of_the_batch(tmp_path: Path) -> None:
    rates = [event("tracked_stats", {"throughput": 32.0}, step=samples) for samples in (1600, 3200)]
    assert steps_us(log(tmp_path, "\n".join([*BENCHMARK, *rates]))) == [(100, 500_000), (200, 500_000)]


def test_mlperf_says_its_model_and_batch_and_never_its_platform(tmp_path: Path) -> None:
    printed = [
        "0:     micro_batch_size: 1",
        "0:    tensor_model_parallel_size: 2",
        "0:    virtual_pipeline_model_parallel_size: null",
    ]
    printed += ["0:    context_parallel_size: 2", "0:    fp8: true", "0:    devices: 8", "0:    num_nodes: 4"]
    step = event("tracked_stats", {"train_step_time": 0.187}, step=31.0)
    lines = [*printed, *(f"0: {line}" for line in (*BENCHMARK, step))]
    settings = dict(log(tmp_path, "\n".join(lines)).stated.settings)
    assert settings == {
        "model": "llama3.1-8b",
        "batch.global": 16,
        "batch.seq_len": 8192,
        "batch.accumulation": 1,
        "batch.micro": 1,
        "plan.tp": 2,
        "plan.cp": 2,
        "precision": "fp8",
        "cluster.nodes": 4,
        "cluster.gpus_per_node": 8,
        "execution.framework": "nemo",
    }


def test_mlperf_of_adapters_states_them(tmp_path: Path) -> None:
    lines = [event("submission_benchmark", "llama2_70b_lora"), event("global_batch_size", 9), event("lora_rank", 16)]
    read = log(tmp_path, "\n".join([*lines, event("tracked_stats", {"train_step_time": 0.2}, samples_count=387)]))
    assert read.stated.settings["adapters"] == {"kind": "lora", "rank": 16, "targets": "qkv,proj", "joint": True}
    assert (read.stated.settings["model"], steps_us(read)) == ("llama2-70b", [(43, 200_000)])


@pytest.mark.parametrize(
    ("fp8", "precision"), [("hybrid", "fp8"), ("e4m3", "fp8"), ("null", "bf16"), ("False", "bf16")]
)
def test_mlperf_names_a_format_of_eight_bits(tmp_path: Path, fp8: str, precision: str) -> None:
    step = event("tracked_stats", {"train_step_time": 0.187}, step=31.0)
    assert log(tmp_path, "\n".join([f"0:    fp8: {fp8}", step])).stated.settings["precision"] == precision
