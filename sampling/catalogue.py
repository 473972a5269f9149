"""Importing this module registers every operator and collective."""

from sampling import collectives  # noqa: F401
from sampling.operators import (  # noqa: F401
    attention,
    elementwise,
    gemm,
    head,
    layer,
    norm,
    optimizer,
    pipeline_action,
    vocabulary,
)
