"""Logs of SGLang's server."""

from __future__ import annotations

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
