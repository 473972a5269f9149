"""Logs of vLLM's server."""

from pathlib import Path

import pytest

from predict.measured_runs.logs import read_log, read_served_log
from sampling.errors import UserError
from tests.predict.measured_runs.logs.log_text import served

VLLM = """\
INFO 10-06 15:56:35 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', tokenizer='Qwen/Qwen3-8B', \
dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None
INFO 10-06 15:57:35 [loggers.py:123] Engine 000: Avg prompt throughput: 512.0 tokens/s, Avg generation throughput: 900.5 tokens/s, Running: \
32 reqs, Waiting: 1 reqs, GPU KV cache usage: 4.1%, Prefix cache hit rate: 0.0%
INFO 10-06 15:57:45 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 1600.0 tokens/s, Running: \
32 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.1%, Prefix cache hit rate: 0.0%
"""


def test_vllm(tmp_path: Path) -> None:
    log = served(tmp_path, VLLM)
    assert [each.step_us for each in log.intervals] == [None, 20_000]
    assert (log.intervals[0].waiting, log.intervals[0].prompt_tokens_per_s) == (1, 512.0)
    assert log.stated.settings == {
        "model": "Qwen/Qwen3-8B",
        "placement.tp": 2,
        "placement.pp": 1,
        "placement.dp": 1,
        "placement.precision": "bf16",
        "engine.max_model_len": 32768,
        "engine.name": "vllm-v1",
    }


def test_a_server_is_no_training_run(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(VLLM)
    with pytest.raises(UserError, match=r"it is of vLLM, a server.*predict import-config"):
        read_log(path)
    path.write_text("nothing of the kind\n")
    with pytest.raises(UserError, match=r"as vLLM.*SGLang.* do|as .*SGLang.*vLLM.* do"):
        read_served_log(path)
