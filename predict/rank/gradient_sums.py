"""Sums of the gradients of activations, which autograd makes where two operators read one tensor."""

from __future__ import annotations

from predict.model.spec import LayerKind
from predict.rank.blocks import Calls
from predict.rank.share import RankShare
from sampling.call import Counted
from sampling.operators.streaming import Stream


def gradient_sums(rank: RankShare, kind: LayerKind) -> Calls:
    """The sums of a layer: of the residual stream before each norm and, where gate and up are two products, of their input.

    Each is a kernel of its own in eager autograd, which reads two tensors and writes one; a compiled graph, or a fused norm that takes
    the residual, has it in another kernel.
    """
    execution, model = rank.execution, rank.model
    if execution.elementwise != "eager":
        return ()
    apart = model.gated and not execution.fuse_gate and not kind.sparse
    elements = (2 * rank.rows + apart * rank.tokens) * model.hidden
    return (Counted(call=Stream(dtype=rank.dtype, size_bytes=3 * rank.item_bytes * elements), phase="forward"),)
