"""Small traces of a data-parallel step, laid out from its own prediction, into which a fault can be put."""

import gzip
import json
from pathlib import Path
from typing import Any

from predict import estimate, load
from predict.measured_runs.explain.predicted import predicted_step
from predict.step.prediction import Prediction
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm

CONFIG = "configs/runs/this-machine/data-parallel.yml"
WORLD_SIZE = 2
NODE = "autograd::engine::evaluate_function: "
THREAD = {"pid": 1, "tid": 1}
FLOAT = ["float"] * 3
MATH = "aten::_scaled_dot_product_attention_math"


def prediction() -> Prediction:
    return estimate(load(CONFIG))


def event(name: str, start: float, duration: float, category: str = "cpu_op", **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": arguments, **THREAD}


def step_events(
    of: Prediction,
    *,
    compute: float = 1.0,
    attention: float = 1.0,
    idle_us: float = 0.0,
    collective: float = 1.0,
    late_us: float = 0.0,
    unfused: bool = False,
) -> list[dict[str, Any]]:
    """One step: each product and attention as its own operator, forward and backward, then the awaited all-reduce.

    `compute` and `attention` are factors on times; with `unfused`, attention is products with a softmax between them; `idle_us` is a
    pause before the first backward; the message takes `collective` times what is predicted, and `late_us` longer for another rank
    that comes late.
    """
    predicted = predicted_step(of)
    events: list[dict[str, Any]] = []
    at = 0.0
    for direction in ("forward", "backward"):
        at += idle_us if direction == "backward" else 0.0
        for (call, way), (runs, time_us) in predicted.calls.items():
            if way != direction or not isinstance(call, Gemm | Attention):
                continue
            name, dims = operator_of(call)
            name = MATH if unfused and isinstance(call, Attention) else name
            took = time_us / round(runs) * compute * (attention if isinstance(call, Attention) else 1.0)
            shapes = {"Input Dims": dims, "Input type": FLOAT, "Concrete Inputs": ["", "", "", "", "True", "", ""]}
            key = list(predicted.calls).index((call, "forward"))
            for _ in range(round(runs)):
                if way == "forward":
                    events.append(event(name, at, took, **shapes, **{"Sequence number": key}))
                else:
                    events.append(event(NODE + node_of(call), at, took, **{"Sequence number": key}))
                    events.append(event(name, at, took, **shapes))
                at += took
    took = sum(predicted.messages_us.values()) * collective + late_us
    events.append(event("gloo:all_reduce", at, took, "user_annotation"))
    return [*events, event("ProfilerStep#1", 0.0, at + took, "user_annotation")]


def operator_of(call: Gemm | Attention) -> tuple[str, list[list[int]]]:
    if isinstance(call, Gemm):
        return "aten::mm", [[call.m, call.k], [call.k, call.n]]
    heads = [[call.batch, many, call.seq_len, call.head_dim] for many in (call.heads, call.kv_heads, call.kv_heads)]
    return "aten::_scaled_dot_product_flash_attention_for_cpu", heads


def node_of(call: Gemm | Attention) -> str:
    return "MmBackward0" if isinstance(call, Gemm) else "ScaledDotProductFlashAttentionForCpuBackward0"


def write(folder: Path, ranks: list[list[dict[str, Any]]]) -> Path:
    """The traces of some ranks in a folder, one of them packed."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, events in enumerate(ranks):
        content = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": WORLD_SIZE}}
        text = json.dumps(content).encode()
        if rank:
            (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text))
        else:
            (folder / f"rank{rank}.json").write_bytes(text)
    return folder
