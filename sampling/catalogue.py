"""Importing this module registers every operator and collective."""

from sampling.cells import (
    head,  # noqa: F401
    layer,  # noqa: F401
    moe_layer,  # noqa: F401
    pipeline_action,  # noqa: F401
)
from sampling.collectives import kinds as collectives  # noqa: F401
from sampling.collectives import overlap  # noqa: F401
from sampling.operators import (  # noqa: F401
    attention,
    elementwise,
    experts,
    gemm,
    linear_attention,
    norm,
    optimizer,
    routing,
    softmax,
    streaming,
    unfused_attention,
    vocabulary,
)
