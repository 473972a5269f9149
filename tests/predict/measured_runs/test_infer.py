"""Configs inferred from logs and traces alone, and `predict import-config` of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from predict import infer_config
from predict.measured_runs.infer import Inferred, is_measured
from predict.measured_runs.traces import is_trace
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command
from tests.predict.measured_runs.explain.made_device_traces import device_step, on_stream
from tests.predict.measured_runs.explain.made_traces import event

NEMO = """\
0:       micro_batch_size: 1
0:       tensor_model_parallel_size: 1
0:       pipeline_model_parallel_size: 1
0:       context_parallel_size: 2
0:       use_distributed_optimizer: true
0:       fp8: true
0:       devices: 8
0:       num_nodes: 8
0: :::MLLOG {"key": "submission_benchmark", "value": "llama31_8b", "metadata": {}}
0: :::MLLOG {"key": "submission_platform", "value": "8xNVIDIA GB200", "metadata": {}}
0: :::MLLOG {"key": "global_batch_size", "value": 32, "metadata": {}}
0: :::MLLOG {"key": "max_sequence_length", "value": 8192, "metadata": {}}
0: :::MLLOG {"key": "tracked_stats", "value": {"train_step_time": 0.353}, "metadata": {"step": 31.0}}
"""


def test_a_log_that_prints_its_configuration_lacks_the_device_alone(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(NEMO)
    found = infer_config(path)
    assert found.document == {
        "model": "llama3.1-8b",
        "cluster": {"nodes": 8, "gpus_per_node": 8},
        "plan": {"tp": 1, "pp": 1, "cp": 2, "zero": 1, "dp": 32},
        "batch": {"global": 32, "seq_len": 8192, "micro": 1},
        "precision": "fp8",
        "execution": {"framework": "nemo"},
    }
    assert [each.partition(":")[0] for each in found.missing] == ["cluster.hardware"]
    assert not found.with_settings(["cluster.hardware=h200"]).missing


def accumulating(steps: int) -> list[str]:
    """The lines of mlperf-logging alone, with so many steps of accumulation."""
    kept = [line for line in NEMO.splitlines() if "MLLOG" in line]
    return [*kept, kept[2].replace("global_batch_size", "gradient_accumulation_steps").replace("32", str(steps))]


def test_accumulation_gives_replicas_where_a_microbatch_of_one_is_assumed(tmp_path: Path) -> None:
    def inferred(steps: int) -> Inferred:
        path = tmp_path / "result_0.txt"
        path.write_text("\n".join(accumulating(steps)))
        return infer_config(path)

    found = inferred(4)
    assert (found.document["plan"], found.document["batch"]) == ({"dp": 8}, {"global": 32, "seq_len": 8192, "micro": 1})
    assert any(each.startswith("batch.micro: 1 is assumed; then 4 steps of") for each in found.uncertain)
    assert any("then 1 step of accumulation" in each for each in inferred(1).uncertain)
    assert {"batch.micro", "plan.dp"}.isdisjoint(each.partition(":")[0] for each in inferred(64).uncertain)


def test_there_are_no_more_replicas_than_gpus(tmp_path: Path) -> None:
    """A log of MLPerf that states one node of a known device: sixteen sequences a step on its eight GPUs."""
    path = tmp_path / "result_0.txt"
    text = "\n".join(accumulating(1)).replace("8xNVIDIA GB200", "1xH200").replace("32", "16")
    path.write_text(f'{text}\n:::SYSJSON {{"accelerator_model_name": "NVIDIA H200"}}')
    found = infer_config(path)
    assert found.document["cluster"] == {"nodes": 1, "hardware": "h200", "gpus_per_node": 8}
    assert (found.document["plan"], found.document["batch"]) == ({"dp": 8}, {"global": 16, "seq_len": 8192, "micro": 2})
    assert any(each.startswith("cluster.gpus_per_node: 8 is usual for h200") for each in found.uncertain)


def test_a_benchmark_of_a_server_makes_a_serving_config(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    figures = {"request_throughput": 2.0, "completed": 10, "total_input_tokens": 6000, "total_output_tokens": 2500}
    path.write_text(json.dumps({"model_id": "meta-llama/Llama-3.1-8B", "max_concurrency": 4, **figures}))
    found = infer_config(path)
    assert found.document == {"model": "llama3.1-8b", "load": {"prompt": 600, "output": 250, "concurrency": 4}}
    assert [each.partition(":")[0] for each in found.missing] == ["hardware", "placement.tp", "engine.name"]


def written(path: Path, events: list[dict[str, Any]], **header: object) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))
    return path


GROUPS = [{"pg_desc": "default_pg", "pg_size": 16}, {"pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "pg_size": 2}]
GROUPS += [
    {"pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "pg_size": 4},
    {"pg_desc": "DATA_PARALLEL_GROUP_WITH_CP", "pg_size": 2},
]


def test_a_trace_shows_its_device_and_the_plan_of_its_groups(tmp_path: Path) -> None:
    devices = [{"name": "NVIDIA H100 80GB HBM3"}] * 8
    distributed = {"rank": 3, "world_size": 16, "pg_config": GROUPS}
    found = infer_config(
        written(tmp_path / "rank3.json", device_step(), deviceProperties=devices, distributedInfo=distributed)
    )
    assert found.document["cluster"] == {"nodes": 2, "gpus_per_node": 8, "hardware": "h100-sxm"}
    plan = found.document["plan"]
    assert isinstance(plan, dict) and (plan["pp"], plan["cp"]) == (4, 1)
    assert found.document["precision"] == "bf16"


def test_the_sizes_of_a_model_show_in_its_products(tmp_path: Path) -> None:
    """Four layers of Llama 3 70B's width, with an embedding before and a head behind them."""
    found = infer_config(
        written(tmp_path / "trace.json", [*embedding(), *device_step()], deviceProperties=[{"name": "nobody's"}] * 2)
    )
    model = found.document["model"]
    assert isinstance(model, dict)
    assert (model["hidden_size"], model["num_hidden_layers"], model["intermediate_size"]) == (8192, 4, 28672)
    assert (model["num_attention_heads"], model["num_key_value_heads"], model["vocab_size"]) == (64, 8, 128_256)
    assert any(each.startswith("cluster.hardware: nobody's") for each in found.uncertain)


def embedding() -> list[dict[str, Any]]:
    shapes = {"Input Dims": [[128_256, 8192], [1, 8192]], "Input type": ["c10::BFloat16", "long int"]}
    return [event("aten::embedding", -100.0, 5.0, **shapes, **{"External id": 10_000})]


def test_products_in_fewer_bits_show_by_their_kernels(tmp_path: Path) -> None:
    named = (("sm90_xmma_gemm_e4m3bf16_e4m3f32", 0.0, 60.0), ("nvjet_tst_64x64", 70.0, 40.0))
    kernels = [on_stream(event(*each, "kernel"), 7) for each in named]
    found = infer_config(written(tmp_path / "trace.json", kernels))
    assert "precision: kernels of 60 % of the products' time are of 8 bits by their names" in found.uncertain
    assert found.document["plan"] == {"tp": 1, "pp": 1, "cp": 1, "dp": 1}


def test_a_folder_holds_several_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path / f"rank{rank}.json", device_step(), distributedInfo={"rank": rank, "world_size": 2})
    found = infer_config(tmp_path)
    assert isinstance(found.measured, tuple)
    assert [each.rank for each in found.measured] == [0, 1]
    written(tmp_path / "again.json", device_step(), distributedInfo={"rank": 1, "world_size": 2})
    with pytest.raises(UserError, match="holds 2 traces of rank 1"):
        infer_config(tmp_path)


@pytest.mark.parametrize(("name", "text"), [("train.log", "hello"), ("notes.txt", "hello"), ("x.json", "{}")])
def test_what_is_neither_is_refused(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match="no line states a step's time as"):
        infer_config(path)


def test_scripts_stay_scripts(tmp_path: Path) -> None:
    script, document = tmp_path / "run.sh", tmp_path / "ds_config.json"
    script.write_text("python train.py\n")
    document.write_text('{"zero_optimization": {"stage": 1}}')
    assert not any(map(is_measured, (script, document, tmp_path / "missing.json")))


def test_the_command_prints_the_config_and_what_is_open(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(NEMO)
    printed = command.run("import-config", str(path))
    assert "model: llama3.1-8b" in printed.out
    assert "measured: 353 ms a step" in printed.err and "missing: cluster.hardware" in printed.err
    answered = command.json("import-config", str(path), "--set", "cluster.hardware=h200")
    assert answered["config"]["cluster"]["hardware"] == "h200"
    assert (answered["missing"], answered["measured"]["step_us"]) == ([], 353_000)
    assert "read alone" in command.refused("import-config", str(path), "run.sh")


def test_a_traced_stage_has_a_part_of_the_model(tmp_path: Path) -> None:
    groups = {"rank": 0, "world_size": 16, "pg_config": GROUPS}
    path = written(tmp_path / "rank0.json", [*embedding(), *device_step()], distributedInfo=groups)
    found = infer_config(path)
    assert found.document["model"]["num_hidden_layers"] == 4 * 4  # type: ignore[index]
    assert any(each.startswith("model: as many layers as 4 stages") for each in found.uncertain)


def test_a_damaged_file_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00damaged, from its fourth byte on")
    assert not is_trace(path)


def test_a_log_of_rates_alone_is_said_to_have_no_time_of_a_step(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "titan.log"
    path.write_text(
        "".join(f"step: {step:2}  loss: 9.1  memory: 40.00GiB(50.00%)  tps: 7,000  mfu: 40.00%\n" for step in (1, 2, 3))
    )
    assert (
        "measured: rates, without a time of a step, of 3 timed lines (torchtitan)"
        in command.run("import-config", str(path)).err
    )


def test_a_logs_plan_that_cannot_run_is_refused_and_a_misspelt_key_too(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text(NEMO)
    impossible = command.refused("import-config", str(path), "--set", "cluster.hardware=h200", "--set", "plan.tp=3")
    assert "--set: plan.tp: 3 does not divide the 32 attention heads" in impossible
    misspelt = command.refused("import-config", str(path), "--set", "plan.schedul=1f1b")
    assert "plan.schedul: unknown key; did you mean 'plan.schedule'?" in misspelt


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{}"),
        ("a.json", "[]"),
        ("a.json", ""),
        ("a.json", '{"traceEvents": []}'),
        ("a.log", ""),
        ("a.sqlite", ""),
    ],
)
def test_an_empty_file_is_called_empty(name: str, text: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert "is empty" in command.refused("import-config", str(path))
    if not name.endswith(".log"):
        assert "is empty" in command.refused("explain", str(CONFIGS / "runs" / "demo.yml"), "--trace", str(path))
