"""Logs of SGLang's server: its lines on batches of prompts and of decodes, and the arguments that it prints when it starts.

Source: `log_decode_stats` of sglang/srt/managers (`Decode batch. #running-req: 32, #token: 41032, token usage: 0.11, cuda graph: True, gen
throughput (token/s): 3351.20, #queue-req: 0`), `server_args=ServerArgs(model_path='…', …, tp_size=8, …)`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from predict.measured_runs.served_log import ServedInterval, ServedLog
from predict.measured_runs.steady_state import Stated

ENGINE = "SGLang"
DECODE = re.compile(
    r"Decode batch\W.*#running-req: (\d+),.*gen throughput \(token/s\): ([\d.]+)(?:.*#queue-req(?: p\+d)?: (\d+))?"
)
PREFILL = re.compile(r"Prefill batch\W.*#running-req: (\d+)(?:.*#queue-req: (\d+))?")
INPUT_RATE = re.compile(r"input throughput \(token/s\): ([\d.]+)")
ARGUMENTS = re.compile(r"server_args=ServerArgs\((.*)\)|ServerArgs\((model_path=.*)\)")
COUNTS: Mapping[str, str] = {
    "tp_size": "placement.tp",
    "pp_size": "placement.pp",
    "dp_size": "placement.dp",
    "chunked_prefill_size": "engine.max_num_batched_tokens",
    "max_running_requests": "engine.max_num_seqs",
}
"""Argument → setting of a serving config."""


def read_served(lines: Sequence[str]) -> ServedLog | None:
    intervals = tuple(each for line in lines if (each := _interval(line)))
    given = _stated(lines)
    if not intervals and not given.settings:
        return None
    return ServedLog(engine=ENGINE, intervals=intervals, stated=given)


def _interval(line: str) -> ServedInterval | None:
    if found := DECODE.search(line):
        return ServedInterval(
            running=int(found[1]), waiting=int(found[3] or 0), output_tokens_per_s=float(found[2]) or None
        )
    if (found := PREFILL.search(line)) and (rate := INPUT_RATE.search(line)):
        return ServedInterval(
            running=int(found[1]), waiting=int(found[2] or 0), prompt_tokens_per_s=float(rate[1]) or None
        )
    return None


def _stated(lines: Iterable[str]) -> Stated:
    for line in lines:
        if found := ARGUMENTS.search(line):
            return Stated(settings=_of_arguments(found[1] or found[2]))
    return Stated()


def _of_arguments(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"engine.name": "sglang"}
    counts = {name: int(value[1]) for name in (*COUNTS, "ep_size") if (value := re.search(rf"\b{name}=(\d+)\b", text))}
    if "enable_dp_attention=True" in text:
        # replicas share the tp GPUs and the requests at once; the chunk is printed as each of them has it
        for name in ("tp_size", "max_running_requests"):
            if name in counts:
                counts[name] = max(1, counts[name] // counts.get("dp_size", 1))
    else:
        counts.pop("dp_size", None)
    settings |= {COUNTS[name]: count for name, count in counts.items() if name in COUNTS}
    if counts.get("ep_size", 1) > 1:
        settings["placement.expert_parallel"] = True
    if value := re.search(r"\bmodel_path='([^']+)'", text):
        settings["model"] = value[1]
    if (value := re.search(r"\bquantization='(\w+)'", text)) and "fp8" in value[1]:
        settings["placement.precision"] = "fp8"
    return settings
