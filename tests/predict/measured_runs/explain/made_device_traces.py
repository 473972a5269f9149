"""A small made trace of a data-parallel step on two GPUs, and edits of traces by which a fault comes into them."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from predict import estimate, load
from predict.measured_runs.explain.predicted import predicted_step
from predict.step.prediction import Prediction
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from tests.predict.measured_runs.explain.made_traces import NODE, event, node_of, operator_of

CONFIG = "configs/runs/llama3-70b-64xh100.yml"
SMALL = [
    *("model.num_layers=4", "plan.pp=1", "plan.vpp=1", "plan.tp=1", "plan.sp=false", "plan.cp=1", "plan.dp=2"),
    *("plan.schedule=1f1b", "cluster.nodes=1", "cluster.gpus_per_node=2", "cluster.profile=analytic"),
    *("batch.global=2", "batch.micro=1"),
]
HOST_US = 10.0
"""Time in which the host launches a kernel."""
Events = list[dict[str, Any]]


@cache
def prediction() -> Prediction:
    return estimate(load(CONFIG, SMALL), require_fit=False)


def device_step() -> Events:
    """Products and attention as predicted, forward and backward, each launched long before it runs, and an all-reduce that ends the step."""
    predicted = predicted_step(prediction())
    events: Events = []
    host = 0.0
    at = 1000.0
    number = 0
    for direction in ("forward", "backward"):
        for (call, way), (runs, time_us) in predicted.calls.items():
            if way != direction or not isinstance(call, Gemm | Attention):
                continue
            name, dims = operator_of(call)
            key = list(predicted.calls).index((call, "forward"))
            for _ in range(round(runs)):
                number += 1
                known = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 3, "External id": number}
                known["Concrete Inputs"] = ["", "", "", "", "True", "", ""]
                if way == "backward":
                    events.append(event(NODE + node_of(call), host, HOST_US, **{"Sequence number": key}))
                    events.append(event(name, host, HOST_US, **known))
                else:
                    events.append(event(name, host, HOST_US, **known, **{"Sequence number": key}))
                events.append(event("cudaLaunchKernel", host + 1, 2.0, "cuda_runtime", correlation=number))
                kernel = event(call.NAME, at, time_us / round(runs), "kernel", correlation=number)
                events.append(on_stream(kernel, 7) | {"args": {"correlation": number, "External id": number}})
                host += HOST_US
                at += time_us / round(runs)
    message_us, exposed_us = predicted.messages_us["dp_exposed"], predicted.headings["dp_exposed"]
    named = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]"}
    events.append(event("cudaLaunchKernel", host, 2.0, "cuda_runtime", correlation=0))
    message = event("ncclDevKernel_AllReduce_Sum_bf16", at + exposed_us - message_us, message_us, "kernel", **named)
    events.append(on_stream(message, 20) | {"args": {**named, "correlation": 0}})
    return [*events, event("ProfilerStep#1", 0.0, host + HOST_US, "user_annotation")]


def on_stream(kernel: dict[str, Any], stream: int) -> dict[str, Any]:
    return kernel | {"pid": 0, "tid": stream}


def warped(events: Events, stretches: Iterable[tuple[float, float, float]]) -> Events:
    """The events on a clock on which each (start, end, added µs) takes longer: what lies within or around it is longer, the rest later."""
    ordered = sorted(stretches)

    def later(at: float, *, is_end: bool) -> float:
        moved = at
        for start, end, added_us in ordered:
            if at >= end and not (is_end and at == start):
                moved += added_us
            elif at > start:
                moved += added_us * (at - start) / (end - start)
        return moved

    return [
        each | {"ts": begin, "dur": later(each["ts"] + each["dur"], is_end=True) - begin}
        for each in events
        for begin in [later(each["ts"], is_end=False)]
    ]


def is_compute(each: dict[str, Any]) -> bool:
    return each["cat"] == "kernel" and "nccl" not in each["name"]


def is_message(each: dict[str, Any]) -> bool:
    return "nccl" in each["name"]


def slowed(events: Events, chosen: Callable[[dict[str, Any]], bool], factor: float) -> Events:
    """The chosen kernels take `factor` times as long; messages, beside which others run, end later by themselves."""
    found = [each for each in events if chosen(each)]
    if all(map(is_message, found)):
        return [each | {"dur": each["dur"] * factor} if is_message(each) else each for each in events]
    return warped(events, [(each["ts"], each["ts"] + each["dur"], (factor - 1) * each["dur"]) for each in found])


def paused(events: Events, pause_us: float, *, launched_late: bool = False) -> Events:
    """A pause before the middle kernel, which was launched before it, or just at its end."""
    compute = [each for each in events if is_compute(each)]
    middle = compute[len(compute) // 2]
    moved = warped(events, [(middle["ts"], middle["ts"], pause_us)])
    number = middle["args"]["correlation"]
    if not launched_late:
        return moved
    at = middle["ts"] + pause_us - 5.0
    return [
        each | {"ts": at} if each["cat"] == "cuda_runtime" and each["args"]["correlation"] == number else each
        for each in moved
    ]


def awaiting(events: Events, wait_us: float) -> Events:
    """The message takes longer, since the other rank comes late."""
    return [each | {"dur": each["dur"] + wait_us} if is_message(each) else each for each in events]
