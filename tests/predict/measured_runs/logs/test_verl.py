"""Logs of verl."""

from __future__ import annotations

from pathlib import Path

from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_the_line_of_a_step(tmp_path: Path) -> None:
    line = "(TaskRunner pid=7) step:12 - actor/entropy:0.4 - perf/time_per_step:np.float64(97.25) - perf/throughput:812.4 - perf/max_memory_allocated_gb:60.0"
    read = log(tmp_path, line)
    assert (read.framework, steps_us(read), read.peak_bytes) == ("verl", [(12, 97_250_000)], 60 * 2**30)
    assert read.steps[0].tokens_per_s_per_gpu == 812.4
