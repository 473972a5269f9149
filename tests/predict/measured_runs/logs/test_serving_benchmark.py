"""JSON of servers' benchmarks."""

import json
from pathlib import Path

from tests.predict.measured_runs.logs.log_text import served


def test_benchmarks(tmp_path: Path) -> None:
    figures = {
        "request_throughput": 2.0,
        "output_throughput": 500.0,
        "mean_ttft_ms": 40.0,
        "p99_tpot_ms": 12.5,
        "completed": 100,
    }
    about = {
        "model_id": "meta-llama/Llama-3.1-8B",
        "total_input_tokens": 60_000,
        "total_output_tokens": 25_000,
        "request_rate": 2.0,
    }
    log = served(tmp_path, json.dumps(figures | about, indent=1), "bench.json")
    assert (log.figures["ttft_mean_us"], log.figures["tpot_p99_us"], log.figures["requests_per_s"]) == (
        40_000,
        12_500,
        2,
    )
    assert (
        log.stated.settings["load.prompt"],
        log.stated.settings["load.output"],
        log.stated.settings["load.rate"],
    ) == (600, 250, 2.0)
    lines = "\n".join(json.dumps(figures | {"output_throughput": rate}) for rate in (400.0, 500.0))
    assert served(tmp_path, lines, "bench.jsonl").figures["output_tokens_per_s"] == 500
    assert served(tmp_path, json.dumps({"avg_latency": 0.5}), "latency.json").figures == {"latency_mean_us": 500_000}
