"""The bound of generation: the largest part of an engine's mean step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from predict.rl.plain.calls import decode_batches, decode_calls, decode_keys
from predict.rl.run.config import RlRun
from predict.serving.batch import Chunk, StepBatch
from predict.serving.kernels.calls import step_kernels
from predict.serving.scheduler.simulate import Served
from predict.serving.server import Server
from predict.serving.stepper import BOUND, Stepper, stepper
from sampling.arithmetic.operator import Operator
from sampling.call import Counted
from sampling.hardware.cluster import Gpu

COMPUTE, MEMORY = "compute", "memory"
OF_TERMS: Mapping[str, Sequence[str]] = {
    COMPUTE: ("beta1", "beta2"),
    MEMORY: ("elementwise", "beta3"),
    "communication": ("all_reduce",),
    "host": ("layer", "step", "request", "launches", "beta4", "beta5"),
}
"""Bound of a step → the terms of a server's step models that count towards it in full; each term of BOUND counts towards the bound of its own
kernels."""


def mean_batch(server: Server, served: Served) -> StepBatch:
    """The batch of a step with as many decodes, over as many cached tokens, and as many prompt tokens as the engine's have on average."""
    decodes = max(1, round(served.mean_requests))
    cached = max(1, round(served.mean_blocks * server.engine.block_size / decodes))
    tokens = round(served.chunk_tokens / served.steps)
    return StepBatch(chunks=(Chunk(tokens=tokens),) if tokens else (), decodes=(cached,) * decodes)


def bound_by(rl: RlRun, server: Server, served: Served) -> str:
    """The largest part of the mean step's time: compute, memory, communication or host."""
    if rl.in_plain_torch:
        return _slower(decode_calls(rl, decode_batches(rl)[-1], decode_keys(rl)[1]), server.cluster.gpu)
    parts = _parts_us(stepper(server, rl.section.rollout.step_model), mean_batch(server, served))
    return max(parts, key=lambda name: parts[name])


def _parts_us(steps: Stepper, batch: StepBatch) -> dict[str, float]:
    ledger = steps.ledger_us(batch)
    parts = {name: sum(ledger.get(term, 0.0) for term in terms) for name, terms in OF_TERMS.items()}
    kernels = step_kernels(steps.server, batch)
    for group in BOUND:
        if time_us := ledger.get(group, 0.0):
            parts[_slower(kernels[group], steps.server.cluster.gpu)] += time_us
    return parts


def _slower(calls: Iterable[Counted], gpu: Gpu) -> str:
    """Whether calls take longer to compute at the peak than to move at the stated bandwidth."""
    compute_us = memory_us = 0.0
    for one in calls:
        if isinstance(one.call, Operator):
            compute_us += one.count * one.call.executed_flops(one.phase) / gpu.peak_flops_per_us(one.call.compute_dtype)
            memory_us += one.count * one.call.least_bytes(one.phase) / gpu.bytes_per_us()
    return COMPUTE if compute_us > memory_us else MEMORY
