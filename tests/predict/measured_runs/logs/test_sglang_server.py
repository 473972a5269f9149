"""Logs of SGLang's server."""

from pathlib import Path

from tests.predict.measured_runs.logs.log_text import served

SGLANG = """\
[2026-02-26 05:19:58] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', tokenizer_path='x', tp_size=4, quantization='fp8')
[2026-02-26 05:20:58] Decode batch. #running-req: 64, #token: 41032, token usage: 0.11, cuda graph: True, gen throughput (token/s): 3200.00, \
#queue-req: 3
"""


def test_sglang(tmp_path: Path) -> None:
    log = served(tmp_path, SGLANG)
    assert [(each.step_us, each.waiting) for each in log.intervals] == [(20_000, 3)]
    assert log.stated.settings["placement.tp"] == 4 and log.stated.settings["placement.precision"] == "fp8"


def test_attention_in_replicas(tmp_path: Path) -> None:
    """They share the GPUs and the requests at once; SGLang prints the chunk as it has divided it."""
    arguments = "tp_size=8, dp_size=4, ep_size=8, enable_dp_attention=True, chunked_prefill_size=2048, max_running_requests=1024"
    settings = served(tmp_path, SGLANG.replace("tp_size=4", arguments)).stated.settings
    assert (settings["placement.tp"], settings["placement.dp"], settings["placement.expert_parallel"]) == (2, 4, True)
    assert (settings["engine.max_num_batched_tokens"], settings["engine.max_num_seqs"]) == (2048, 256)
    apart = served(tmp_path, SGLANG.replace("tp_size=4", arguments.replace("=True", "=False"))).stated.settings
    assert apart["placement.tp"] == 8 and "placement.dp" not in apart
