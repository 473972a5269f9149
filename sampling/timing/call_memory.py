"""How much of a device's memory a built call takes, by its fields alone: what cannot fit is not begun."""

from __future__ import annotations

import math

from sampling.arithmetic.operator import Operator
from sampling.call import Call
from sampling.cells.gradient_cell import GradientCell
from sampling.cells.layer import LayerShape
from sampling.cells.moe_layer import MoELayer
from sampling.hardware.cluster import Cluster
from sampling.operators.unfused_attention import UnfusedAttention

COPIES = 2
MEMORY_SHARE = 0.6
"""Of a device's memory, what a call's own tensors may take: beside them are a library's workspaces and what is scattered."""


def resident_bytes(call: Call) -> float:
    """Bytes of the tensors that stay while a call is timed, an estimate within a factor of two; 0 for a collective.

    An operator keeps what its forward moves and as much again in gradients, twice over (`COPIES`). In a layer a tensor that
    one part writes and the next reads is counted twice already, and only weights have gradients that stay.
    """
    if not isinstance(call, Operator):
        return 0.0
    if "step" in call.PHASES:
        return call.bytes_moved("step")
    traffic = call.bytes_moved("forward")
    if isinstance(call, GradientCell):
        # gradients, and the buckets that they are reduced in
        return traffic + 2.0 * call.gradient_bytes()
    if isinstance(call, LayerShape | MoELayer):
        weights = call.item_bytes * sum(math.prod(shape) for shape in call.weight_shapes())
        return COPIES * (traffic + weights)
    return COPIES * traffic * (1 if isinstance(call, UnfusedAttention) else 2)


def fits(call: Call, cluster: Cluster) -> bool:
    """Whether a GPU holds the call; ranks on a CPU share what the machine has, and their calls are small."""
    if cluster.gpu.kind == "cpu":
        return True
    return resident_bytes(call) <= MEMORY_SHARE * cluster.gpu.memory_gib * 2**30
