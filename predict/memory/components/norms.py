"""Norms, and what joins a branch to the residual stream."""

from __future__ import annotations

from predict.memory.components.part import Part, Parts
from predict.memory.components.share import FP32, Share


def norm_bytes(share: Share, rows: float, width: int) -> float:
    """What a norm keeps (torch 2.13's saved tensors; facts of 2026, byte-equal for transformers 5.23).

    LayerNorm and fused RMSNorm: their input and fp32 mean and 1/σ a row, or 1/σ alone. Hugging Face's RMSNorm in its own
    operators: rows · ((4 + e)·width + 4), an fp32 copy, 1/σ and the 16-bit result that the scale multiplies. Gemma's and
    Qwen3-Next's, which scale by 1 + weight in fp32: rows · (8·width + 4) and that sum.
    """
    if share.rank.model.norm == "layer":
        return rows * (share.item * width + 2 * FP32)
    if share.profile.fused_norm:
        return rows * (share.item * width + FP32)
    if zero_centred(share):
        return rows * (2 * FP32 * width + FP32) + FP32 * width
    return rows * ((FP32 + share.item) * width + FP32)


def zero_centred(share: Share) -> bool:
    """Gemma 2 and 3 norm outputs too; Qwen3-Next and its like gate their queries or have linear layers."""
    model = share.rank.model
    return model.norms_a_layer > 2 or model.query_gate or model.linear is not None


def keeps_its_input(share: Share) -> bool:
    """Whether the tensor that enters a norm is itself kept, rather than an fp32 copy of it."""
    return share.rank.model.norm == "layer" or share.profile.fused_norm or share.item == FP32


def norm_part(share: Share, *, shares_input: bool = False, separate: bool = True) -> Part:
    """A norm of the residual stream; with `shares_input` another norm has kept the same input already. One that is not
    `separate` is part of the product after it in Transformer Engine, where nothing recomputes it alone."""
    kept = norm_bytes(share, share.rows, share.hidden)
    stream = 0.0 if shares_input else share.stream
    if shares_input and keeps_its_input(share):
        kept -= share.stream
    in_torch = share.rank.model.norm == "rms" and not share.profile.fused_norm
    copies = FP32 * share.rows * share.hidden
    return Part(
        component="norm",
        kept=kept,
        left={"layernorm": min(kept, stream)} if separate or not share.profile.frees_recomputed_outputs else {},
        passing=share.stream + copies * in_torch,
        # four fp32 tensors and, of a 16-bit norm, its result's gradient (counted on CPU, torch 2.13)
        gradients=4 * copies + (FP32 - share.item) * share.rows * share.hidden if in_torch else 2 * share.stream,
    )


def input_part(share: Share, component: str, *, separate_norm: bool, wide: bool = False) -> Part:
    """The norm's output, which the products that follow it keep once together; `wide` where not only they do.

    Megatron-Core's `layernorm` frees it too, unless norm and product are one Transformer Engine module (transformer_layer.py:
    no norm to recompute where it is an IdentityOp).
    """
    item = share.item if wide else share.input_item
    dropped = separate_norm and share.profile.frees_recomputed_outputs
    return Part(
        component=component,
        kept=item * share.entering * share.hidden,
        left={"layernorm": 0.0} if dropped else {},
        gradients=share.item * share.tokens * share.hidden,
    )


def residual_parts(share: Share, *, last: bool) -> Parts:
    """The addition keeps nothing; dropout before it a mask of a byte an element (torch's and Megatron's fused dropout)."""
    masks = float(share.rows * share.hidden) if share.rank.execution.dropout else 0.0
    lost = last and not keeps_its_input(share)
    return (
        Part(component="dropout", kept=masks),
        # the branch and the sum; and the stream, where the norm kept an fp32 copy instead
        Part(component="residual", kept=0.0, passing=(3 if lost else 2) * share.stream),
    )


def branch_norm_part(share: Share) -> Part:
    """Gemma's norm of a branch before it joins the stream, whose input nothing else keeps."""
    return norm_part(share)
