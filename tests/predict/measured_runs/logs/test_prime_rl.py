"""Logs of prime-rl."""

from __future__ import annotations

from pathlib import Path

from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_the_trainer(tmp_path: Path) -> None:
    trainer = "12:00:01 SUCCESS Step 3 | Time: 8.31s | Loss: 0.0012 | Throughput: 61234 tokens/s | MFU: 31.2% | Peak Mem.: 71.3/79.2 GiB (90%)"
    read = log(tmp_path, trainer)
    assert (read.framework, steps_us(read), read.peak_bytes) == ("prime-rl", [(4, 8_310_000)], 71.3 * 2**30)
