"""The arguments that Megatron prints before it trains."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from predict.measured_runs.steady_state import Stated
from tests.predict.measured_runs.log_lines import megatron
from tests.predict.measured_runs.logs.log_text import log

PRINTED = {
    "add_bias_linear": False,
    "attention_dropout": 0.0,
    "bf16": True,
    "context_parallel_size": 1,
    "ffn_hidden_size": 14336,
    "fp8": None,
    "global_batch_size": 128,
    "group_query_attention": True,
    "hidden_dropout": 0.0,
    "hidden_size": 4096,
    "micro_batch_size": 1,
    "normalization": "RMSNorm",
    "num_attention_heads": 32,
    "num_layers": 32,
    "num_query_groups": 8,
    "padded_vocab_size": 128256,
    "pipeline_model_parallel_size": 2,
    "position_embedding_type": "rope",
    "seq_length": 8192,
    "sequence_parallel": True,
    "swiglu": True,
    "tensor_model_parallel_size": 2,
    "untie_embeddings_and_output_weights": True,
    "use_distributed_optimizer": True,
    "world_size": 64,
}


def stated_by(tmp_path: Path, printed: Mapping[str, Any]) -> Stated:
    lines = [
        "------------------------ arguments ------------------------",
        *(f"  {name} {'.' * (48 - len(name))} {value}" for name, value in printed.items()),
        "-------------------- end of arguments ---------------------",
        "  num_layers ............ 99",
        *(megatron(step, 7.5) for step in range(1, 5)),
    ]
    return log(tmp_path, "\n".join(lines)).stated


@pytest.mark.parametrize(
    ("printed", "attention"),
    [("AttnBackend.auto", "best"), ("AttnBackend.fused", "cudnn"), ("AttnBackend.flash", None)],
)
def test_values_are_read_as_they_are_printed(tmp_path: Path, printed: str, attention: str | None) -> None:
    moments = {"exp_avg_dtype": "torch.bfloat16", "exp_avg_sq_dtype": "torch.bfloat16"}
    optimizer = {"use_precision_aware_optimizer": True, "main_params_dtype": "torch.float16", **moments}
    stated = stated_by(tmp_path, {**PRINTED, "attention_backend": printed, **optimizer})
    found = [stated.settings.get(f"execution.{key}") for key in ("attention", "master_dtype", "moment_dtype")]
    assert found == [attention, "fp16", "bf16"]
    assert any(each.startswith("execution.attention: flash") for each in stated.uncertain) is (attention is None)


def test_arguments_are_read_as_those_of_a_script(tmp_path: Path) -> None:
    stated = stated_by(tmp_path, PRINTED)
    settings = stated.settings
    assert settings["model"] == "llama3-8b"
    plan = {key: value for key, value in settings.items() if key.startswith("plan.")}
    assert plan == {"plan.tp": 2, "plan.pp": 2, "plan.cp": 1, "plan.dp": 16, "plan.sp": True, "plan.zero": 1}
    assert (settings["batch.global"], settings["batch.micro"], settings["batch.seq_len"]) == (128, 1, 8192)
    assert (settings["precision"], settings["cluster.nodes"]) == ("bf16", 8)
    assert any(each.startswith("cluster.gpus_per_node: 8 is assumed") for each in stated.uncertain)


def test_a_log_without_them_states_nothing(tmp_path: Path) -> None:
    assert not log(tmp_path, "\n".join(megatron(step, 7.5) for step in range(1, 5))).stated.settings


def test_the_line_on_the_ranks_is_read_without_them(tmp_path: Path) -> None:
    lines = (
        "using world size: 128, data-parallel size: 2, context-parallel size: 2, hierarchical context-parallel sizes: None, "
        "tensor-model-parallel size: 8, pipeline-model-parallel size: 4",
        *(megatron(step, 7.5) for step in range(1, 5)),
    )
    stated = log(tmp_path, "\n".join(lines)).stated
    assert stated.settings == {
        "plan.tp": 8,
        "plan.pp": 4,
        "plan.cp": 2,
        "plan.dp": 2,
        "cluster.nodes": 16,
        "cluster.gpus_per_node": 8,
    }
    assert stated.uncertain[0].startswith("cluster.gpus_per_node: 8 is assumed")
    older = (
        "using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 2, pipeline-model-parallel size: 2 "
    )
    settings = log(tmp_path, "\n".join((older, *lines[1:]))).stated.settings
    assert (settings["plan.dp"], settings["plan.cp"]) == (2, 1)
