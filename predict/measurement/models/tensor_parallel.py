"""Tensor and sequence parallelism of the real model with DTensor, laid out as torch's own tutorials do.

Column-parallel query, key, value, gate and up; row-parallel output and down; vocabulary-parallel embedding, head and
loss. Attention and MLP take their input once (one gather, or one all-reduce of its gradient), not once a matrix.
With sequence parallelism, norms and residuals hold 1/tp of the sequence.
"""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle

from predict.measurement.models.real_model import Decoder


def parallelize(model: Decoder, mesh: DeviceMesh, *, sequence_parallel: bool, gated: bool) -> None:
    """Shard a decoder (or a stage of one) in place over a one-dimensional mesh.

    Without sequence parallelism the norms' weights stay plain tensors, replicated and with equal gradients.
    """
    residual: Placement = Shard(1) if sequence_parallel else Replicate()
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=residual),
        "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=residual),
        "head": ColwiseParallel(input_layouts=residual, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence_parallel:
        styles["norm"] = SequenceParallel()
    for name, style in styles.items():
        if getattr(model, name) is not None:
            parallelize_module(model, mesh, {name: style})
    for layer in model.layers:
        parallelize_module(layer, mesh, layer_styles(residual, gated=gated))
    # Sharding gave embedding and head a parameter each.
    model.tie()


def layer_styles(residual: Placement, *, gated: bool) -> dict[str, ParallelStyle]:
    """The style of each part of a layer whose residual stream is laid out as `residual`."""
    styles: dict[str, ParallelStyle] = {
        "attention": PrepareModuleInput(input_layouts=(residual, None), desired_input_layouts=(Replicate(), None)),
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=residual),
        "mlp": PrepareModuleInput(input_layouts=(residual,), desired_input_layouts=(Replicate(),)),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=residual),
    }
    if gated:
        styles["mlp.gate"] = ColwiseParallel()
    if isinstance(residual, Shard):
        styles["attention_norm"] = SequenceParallel()
        styles["mlp_norm"] = SequenceParallel()
    return styles
