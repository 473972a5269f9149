"""Logs of vLLM's server: a line every ten seconds, and the arguments that it prints when it starts.

Source: `LoggingStatLogger.log` of vllm/v1/metrics/loggers.py (`Engine 000: Avg prompt throughput: 312.0 tokens/s, Avg generation
throughput: 1153.2 tokens/s, Running: 32 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.1%, …`), and `Initializing a V1 LLM engine (v0.11.0)
with config: model='…', …, dtype=torch.bfloat16, max_seq_len=32768, …, tensor_parallel_size=8, …` of vllm/v1/engine/core.py."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from predict.measured_runs.served_log import ServedInterval, ServedLog
from predict.measured_runs.steady_state import Stated

ENGINE = "vLLM"
INTERVAL = re.compile(
    r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s, Running: (\d+) reqs, (?:Swapped: \d+ reqs, )?"
    r"(?:Waiting|Pending): (\d+) reqs"
)
CONFIG = re.compile(r"Initializing a(?: V\d)? LLM engine \(v[^)]*\) with config: (.*)")
OTHER_ARGUMENTS = re.compile(r"non-default args: (\{.*\})")
PRECISIONS: Mapping[str, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
COUNTS: Mapping[str, str] = {
    "tensor_parallel_size": "placement.tp",
    "pipeline_parallel_size": "placement.pp",
    "data_parallel_size": "placement.dp",
    "max_num_batched_tokens": "engine.max_num_batched_tokens",
    "max_num_seqs": "engine.max_num_seqs",
    "max_seq_len": "engine.max_model_len",
}
"""Argument → setting of a serving config."""


def read_served(lines: Sequence[str]) -> ServedLog | None:
    intervals = tuple(
        ServedInterval(
            prompt_tokens_per_s=float(found[1]),
            output_tokens_per_s=float(found[2]),
            running=int(found[3]),
            waiting=int(found[4]),
        )
        for line in lines
        if (found := INTERVAL.search(line))
    )
    given = _stated(lines)
    if not intervals and not given.settings:
        return None
    return ServedLog(engine=ENGINE, intervals=intervals, stated=given)


def _stated(lines: Iterable[str]) -> Stated:
    settings: dict[str, Any] = {}
    for line in lines:
        if found := CONFIG.search(line) or OTHER_ARGUMENTS.search(line):
            settings |= _of_arguments(found[1])
    if settings:
        settings["engine.name"] = "vllm-v1"
    return Stated(settings=settings)


def _of_arguments(text: str) -> dict[str, Any]:
    """The settings in `name=value, …` or `'name': value, …`."""
    found: dict[str, Any] = {}
    for name, setting in COUNTS.items():
        if value := re.search(rf"\b{name}'?[=:]\s*(\d+)\b", text):
            found[setting] = int(value[1])
    if value := re.search(r"\bmodel(?:_tag|_path)?'?[=:]\s*'([^']+)'", text):
        found["model"] = value[1]
    if (value := re.search(r"\bdtype'?[=:]\s*'?(?:torch\.)?(\w+)", text)) and value[1] in PRECISIONS:
        found["placement.precision"] = PRECISIONS[value[1]]
    if (value := re.search(r"\bquantization'?[=:]\s*'?(\w+)", text)) and "fp8" in value[1]:
        found["placement.precision"] = "fp8"
    return found
