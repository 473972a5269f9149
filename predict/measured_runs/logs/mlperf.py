"""Logs of MLPerf training submissions: the lines `:::MLLOG {…}` of mlperf-logging, whatever framework wrote them.

Source: github.com/mlcommons/logging and the callbacks of the submissions. `tracked_stats` states `train_step_time`, the seconds of one
step, either every so many steps (with a `step`) or once for all steps of a block (without), or a block's `throughput` in samples per
second; the three are never mixed, and validation has keys of its own. `submission_platform` is a template that submitters forget to fill
in, so the device is not read from it; the nodes before its `x` are what the launcher counted."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from predict.measured_runs.logs import above_zero
from predict.measured_runs.steady_state import LoggedStep, Stated

FRAMEWORK = "MLPerf"
EVENT = re.compile(r":::MLLOG\s*(\{.*\})\s*$")
MODELS: Mapping[str, str] = {
    "llama31_8b": "llama3.1-8b",
    "llama31_405b": "llama3.1-405b",
    "llama2_70b_lora": "llama2-70b",
    "gpt3": "gpt3-175b",
}
"""Benchmark → shipped model."""
SEQ_LENS: Mapping[str, int] = {"llama2_70b_lora": 8192, "gpt3": 2048}
"""Lengths that the benchmark's rules fix and its logs leave out (github.com/mlcommons/training)."""
LORA_TARGETS = "qkv,proj"
"""Matrices with adapters in the reference of llama2_70b_lora, `lora_target_modules` of its README."""


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    events = [*_events(lines)]
    batch, seq_len = _whole(_value(events, "global_batch_size")), _seq_len(events)
    of_steps, of_blocks, of_rates = _of_steps(events), _of_blocks(events, batch), _of_rates(events, batch)
    for step, time_us in of_steps or of_blocks or of_rates:
        yield LoggedStep(step=step, time_us=time_us, batch=batch, seq_len=seq_len)


def stated(lines: Sequence[str]) -> Stated:
    """The benchmark's model, batch and adapters, and the configuration that NeMo prints before it starts."""
    events = [*_events(lines)]
    benchmark = str(_value(events, "submission_benchmark"))
    batch, steps = (_whole(_value(events, key)) for key in ("global_batch_size", "gradient_accumulation_steps"))
    settings: dict[str, Any] = {
        "model": MODELS.get(benchmark),
        "batch.global": batch,
        "batch.seq_len": _seq_len(events),
        "batch.accumulation": steps,
        "cluster.nodes": _nodes(events),
        **_of_nemo(lines),
    }
    if rank := _whole(_value(events, "lora_rank")):
        settings["adapters"] = {"kind": "lora", "rank": rank, "targets": LORA_TARGETS, "joint": True}
    uncertain = []
    if device := _accelerator(lines):
        settings["cluster.hardware"] = device
        uncertain.append(f"cluster.hardware: {device} by the line :::SYSJSON, which submitters edit")
    if benchmark and benchmark != "None" and benchmark not in MODELS:
        uncertain.append(f"model: the benchmark {benchmark} has no shipped model")
    return Stated(
        settings={key: value for key, value in settings.items() if value is not None}, uncertain=tuple(uncertain)
    )


def _events(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if found := EVENT.search(line):
            try:
                event = json.loads(found[1])
            except (ValueError, RecursionError):  # a line that was cut, or two that were written at once
                continue
            if isinstance(event, dict) and isinstance(event.get("metadata"), dict):
                yield event


def _value(events: Iterable[Mapping[str, Any]], key: str) -> Any:
    return next((event.get("value") for event in events if event.get("key") == key), None)


def _seq_len(events: Sequence[Mapping[str, Any]]) -> int | None:
    return _whole(_value(events, "max_sequence_length")) or SEQ_LENS.get(str(_value(events, "submission_benchmark")))


def _stats(events: Iterable[Mapping[str, Any]], name: str) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """A figure of `tracked_stats` above 0, with the metadata of its event."""
    for event in events:
        value = event.get("value")
        if event.get("key") == "tracked_stats" and isinstance(value, dict) and above_zero(value.get(name)):
            yield float(value[name]), event["metadata"]


def _of_steps(events: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """(step, µs) of lines about one step; steps count from 0."""
    stats = _stats(events, "train_step_time")
    numbered = ((time_s, at.get("step")) for time_s, at in stats)
    return [
        (int(step) + 1, 1e6 * time_s)
        for time_s, step in numbered
        if isinstance(step, int | float) and math.isfinite(step)
    ]


def _of_blocks(events: Sequence[Mapping[str, Any]], batch: int | None) -> list[tuple[int, float]]:
    """(last step, µs a step) of blocks, whose `samples_count` is the block's own."""
    done = 0.0
    found = []
    for time_s, at in _stats(events, "train_step_time"):
        samples = at.get("samples_count")
        if "step" not in at and batch and isinstance(samples, int | float) and samples > 0:
            done += samples / batch
            found.append((round(done), 1e6 * time_s))
    return found


def _of_rates(events: Sequence[Mapping[str, Any]], batch: int | None) -> list[tuple[int, float]]:
    """(last step, µs a step) of blocks that state samples per second; their `step` counts samples."""
    if not batch:
        return []
    stats = _stats(events, "throughput")
    return [
        (max(1, round(at["step"] / batch)), 1e6 * batch / per_s) for per_s, at in stats if above_zero(at.get("step"))
    ]


# What is said of the run: nodes, NeMo's printed configuration, the system that a script collected.


def _nodes(events: Iterable[Mapping[str, Any]]) -> int | None:
    found = re.match(r"(\d+)x", str(_value(events, "submission_platform")))
    return int(found[1]) if found else None


NEMO: Mapping[str, str] = {
    "micro_batch_size": "batch.micro",
    "tensor_model_parallel_size": "plan.tp",
    "pipeline_model_parallel_size": "plan.pp",
    "virtual_pipeline_model_parallel_size": "plan.vpp",
    "context_parallel_size": "plan.cp",
    "expert_model_parallel_size": "plan.ep",
    "num_nodes": "cluster.nodes",
    "devices": "cluster.gpus_per_node",
}
"""Key of NeMo's printed configuration → setting."""
SWITCHES = {
    "sequence_parallel": ("plan.sp", True, False),
    "use_distributed_optimizer": ("plan.zero", 1, 0),
    "fp8": ("precision", "fp8", "bf16"),
}
"""Key → setting, with its value where the key is on, by `true` or by a name such as `hybrid`, and where it is off."""
OFF = ("false", "none", "null")
NEMO_KEY = re.compile(rf"^\s*(?:\d+:)?\s+({'|'.join((*NEMO, *SWITCHES))}): (\w+)\s*$")


def _of_nemo(lines: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in lines:
        if key := NEMO_KEY.match(line):
            name, value = key.groups()
            if name in NEMO and value.isdecimal():
                found.setdefault(NEMO[name], int(value))
            elif name in SWITCHES:
                setting, on, off = SWITCHES[name]
                found.setdefault(setting, off if value.lower() in OFF else on)
    if found:
        found["execution.framework"] = "nemo"
    return found


ACCELERATOR = re.compile(r'"accelerator_model_name":\s*"([^"]+)"')


def _accelerator(lines: Iterable[str]) -> str | None:
    return next((found[1] for line in lines if ":::SYSJSON" in line and (found := ACCELERATOR.search(line))), None)


def _whole(value: object) -> int | None:
    return round(number) if (number := above_zero(value)) else None
