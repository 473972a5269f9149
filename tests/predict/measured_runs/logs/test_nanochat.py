"""Logs of nanochat."""

from pathlib import Path

import pytest

from tests.predict.measured_runs.logs.log_text import log, steps_us

NANOCHAT = """\
Vocab size: 65,536
num_layers: 20
model_dim: 1280
num_heads: 10
num_kv_heads: 10
Tokens / micro-batch / rank: 32 x 2048 = 65,536
Tokens / micro-batch: 524,288
Total batch size 524,288 => gradient accumulation steps: 1
step 00000/21400 (0.00%) | loss: 11.090378 | grad norm: 0.0 | lrm: 1.00 | dt: 21523.55ms | tok/sec: 24,358 | mfu: 1.09 | total time: 0.00m
step 00001/21400 (0.00%) | loss: 10.9 | grad norm: 0.1 | lrm: 1.00 | dt: 498.11ms | tok/sec: 1,052,554 | mfu: 47.24 | total time: 0.00m
Peak memory usage: 75422.02MiB
"""


def test_nanochat(tmp_path: Path) -> None:
    read = log(tmp_path, NANOCHAT)
    assert (read.framework, steps_us(read)) == ("nanochat", [(1, 21_523_550), (2, 498_110)])
    assert read.peak_bytes == pytest.approx(75_422.02 * 2**20)
    settings = read.stated.settings
    assert (settings["plan.dp"], settings["batch.global"], settings["batch.micro"]) == (8, 256, 32)
    assert (settings["model"]["num_hidden_layers"], settings["model"]["intermediate_size"]) == (20, 5120)
    assert any("ReLU²" in each for each in read.stated.uncertain)
