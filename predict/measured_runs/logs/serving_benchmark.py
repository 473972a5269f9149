"""JSON of the benchmarks of vLLM (`vllm bench serve|latency|throughput`) and SGLang (`bench_serving`, JSON lines).

Source: vllm/benchmarks/serve.py and sglang/bench_serving.py (`request_throughput`, `output_throughput`, `mean_ttft_ms`, `p99_tpot_ms`, …),
vllm/benchmarks/latency.py (`avg_latency`, in seconds) and throughput.py (`elapsed_time`, `requests_per_second`, `tokens_per_second`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.steady_state import Stated

ENGINE = "vLLM's and SGLang's benchmarks"
MARKS = ("request_throughput", "output_throughput", "mean_ttft_ms", "avg_latency", "tokens_per_second")
"""Keys of which a benchmark's file has one."""
FIGURES: Mapping[str, tuple[str, float]] = {
    "request_throughput": ("requests_per_s", 1.0),
    "requests_per_second": ("requests_per_s", 1.0),
    "output_throughput": ("output_tokens_per_s", 1.0),
    "total_token_throughput": ("tokens_per_s", 1.0),
    "total_throughput": ("tokens_per_s", 1.0),
    "tokens_per_second": ("tokens_per_s", 1.0),
    "duration": ("duration_us", 1e6),
    "elapsed_time": ("duration_us", 1e6),
    "avg_latency": ("latency_mean_us", 1e6),
    "completed": ("requests", 1.0),
    "num_requests": ("requests", 1.0),
    "total_input_tokens": ("prompt_tokens", 1.0),
    "total_output_tokens": ("output_tokens", 1.0),
    "max_concurrency": ("concurrency", 1.0),
    "concurrency": ("mean_concurrency", 1.0),
    **{
        f"{which}_{what}_ms": (f"{what}_{which}_us", 1e3)
        for which in ("mean", "median", "p50", "p90", "p95", "p99")
        for what in ("ttft", "tpot", "itl", "e2el", "e2e_latency")
    },
}
"""Key → figure, with what its unit is to be multiplied by."""


def read_served(lines: Sequence[str]) -> ServedLog | None:
    content = _content(lines)
    if content is None or not any(mark in content for mark in MARKS):
        return None
    known = ((FIGURES[key], value) for key, value in content.items() if key in FIGURES)
    figures = {name: value * unit for (name, unit), value in known if isinstance(value, int | float) and value > 0}
    return ServedLog(engine=ENGINE, figures=figures, stated=_stated(content))


def _content(lines: Sequence[str]) -> Mapping[str, Any] | None:
    """The document, or the last of JSON lines; None for any other file."""
    text = "\n".join(lines).strip()
    if not text.startswith("{"):
        return None
    for piece in (text, text.rpartition("\n")[2]):
        try:
            found = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _stated(content: Mapping[str, Any]) -> Stated:
    """The model and the load; what makes the server itself it does not say."""
    settings: dict[str, Any] = {}
    arguments = content.get("server_info") or {}
    model = (
        content.get("model_id")
        or content.get("model")
        or (arguments.get("model_path") if isinstance(arguments, dict) else None)
    )
    if isinstance(model, str):
        settings["model"] = model
    requests, prompt, output = (content.get(key) for key in ("completed", "total_input_tokens", "total_output_tokens"))
    if all(isinstance(each, int | float) and each > 0 for each in (requests, prompt, output)):
        assert requests and prompt and output
        settings |= {
            "load.prompt": round(prompt / requests),
            "load.output": round(output / requests),
        }
    rate, concurrency = content.get("request_rate"), content.get("max_concurrency")
    if isinstance(concurrency, int) and concurrency > 0:
        settings["load.concurrency"] = concurrency
    elif isinstance(rate, int | float) and 0 < rate < float("inf"):
        settings["load.rate"] = float(rate)
    mean = "load.prompt: all requests at the mean length, since the file has no other"
    return Stated(settings=settings, uncertain=(mean,) if "load.prompt" in settings else ())
