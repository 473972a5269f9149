"""Norms, the input of the products that follow them, and the addition to the residual stream."""

from predict.layers.saved_tensors import FP32, Saved, SavedTensors, Sizes
from predict.model.spec import LayerKind

NORM = "norm"
"""The component of what norms of the residual stream keep."""


def norm_bytes(sizes: Sizes, rows: float, width: int, *, norm: str = "") -> float:
    """Bytes that a norm keeps, of the model's kind unless it is of another (torch 2.13's saved tensors; byte-equal for transformers 5.23).

    LayerNorm and fused RMSNorm: their input and, per row, fp32 mean and 1/σ or 1/σ alone. Hugging Face's RMSNorm in its own
    operators: rows · ((4 + e)·width + 4), an fp32 copy, 1/σ and the 16-bit result that the scale multiplies. OLMo 2's,
    which scales in fp32: rows · (8·width + 4). Gemma's and Qwen3-Next's, which scale by 1 + weight in fp32: that and the sum.
    The result that the scale multiplies is for the scale's own gradient, which a frozen one has not.
    """
    if (norm or sizes.model.norm) == "layer":
        return rows * (sizes.rank.modulated_item_bytes * width + 2 * FP32)
    if sizes.fused_norm:
        return rows * (sizes.item * width + FP32)
    is_trained = not sizes.rank.run.adapters.are_trained
    if _zero_centred(sizes) or sizes.model.scales_in_fp32:
        return rows * ((1 + is_trained) * FP32 * width + FP32) + FP32 * width * _zero_centred(sizes)
    return rows * ((FP32 + is_trained * sizes.item) * width + FP32)


def _zero_centred(sizes: Sizes) -> bool:
    """True of Gemma 2 and 3, which norm outputs too, and of Qwen3-Next's family, which gates queries or has linear layers."""
    model = sizes.model
    return model.norms_a_layer > 2 or model.query_gate or any(mixer.ZERO_CENTRED_NORMS for mixer in model.mixers)


def keeps_its_input(sizes: Sizes) -> bool:
    """Whether a norm keeps its input tensor itself, rather than an fp32 copy of it."""
    if sizes.model.modulates_in_fp32 or not (sizes.model.norm == "layer" or sizes.fused_norm):
        return sizes.item == FP32
    return True


def norm(sizes: Sizes, *, is_module: bool = True, shares_input: bool = False) -> SavedTensors:
    """A norm of the residual stream.

    `is_module`: not fused with the product after it, as in Transformer Engine's LayerNormLinear, whose norm cannot be recomputed
    alone. `shares_input`: another norm keeps the same input already.
    """
    kept = norm_bytes(sizes, sizes.rows, sizes.hidden)
    stream = 0.0 if shares_input else sizes.stream
    if shares_input and keeps_its_input(sizes):
        kept -= sizes.stream
    in_torch = sizes.model.norm == "rms" and not sizes.fused_norm
    copies = FP32 * sizes.rows * sizes.hidden
    return SavedTensors(
        component=NORM,
        kept=kept,
        if_recomputed={"layernorm": min(kept, stream)}
        if is_module or not sizes.profile.frees_recomputed_outputs
        else {},
        in_forward=sizes.stream + copies * in_torch,
        # four fp32 tensors and, of a 16-bit norm, the gradient of its result (counted on CPU, torch 2.13)
        in_backward=4 * copies + (FP32 - sizes.item) * sizes.rows * sizes.hidden if in_torch else 2 * sizes.stream,
    )


def normed_input(
    sizes: Sizes,
    component: str,
    *,
    is_module: bool,
    shares_input: bool = False,
    not_only_products: bool = False,
    input_of: tuple[str, ...] = (),
) -> Saved:
    """A norm and its output; the products that read it share one copy.

    Recomputing Megatron-Core's `layernorm` frees the output too, unless norm and product are one Transformer Engine
    module (transformer_layer.py: the norm is an IdentityOp then). `not_only_products`: something else reads it too, so
    that no fp8 copy replaces it. `input_of`: the products that alone read it.
    """
    item = sizes.item if not_only_products else sizes.input_item
    kept = item * sizes.input_rows * sizes.hidden
    output = SavedTensors(
        component=component,
        kept=kept,
        if_recomputed={"layernorm": 0.0} if is_module and sizes.profile.frees_recomputed_outputs else {},
        in_backward=sizes.item * sizes.tokens * sizes.hidden,
        input_of=input_of,
        read_too=kept,
    )
    return (norm(sizes, is_module=is_module, shares_input=shares_input), output)


def residual(sizes: Sizes, kind: LayerKind, *, last: bool) -> Saved:
    """Dropout, whose mask takes a byte per element (torch's and Megatron's fused dropout), learnt factors, for whose gradient the branch
    stays, and the addition, which keeps nothing. `last`: the last addition of the layer."""
    mask = float(sizes.rows * sizes.hidden) if sizes.rank.execution.dropout else 0.0
    # a number that gates the branch has passed a tanh, whose result stays too
    unscaled = (sizes.stream if sizes.model.scales_branches(kind) else 0.0) + sizes.item * kind.gated
    lost = last and not keeps_its_input(sizes)
    return (
        SavedTensors(component="dropout", kept=mask),
        # the branch and the sum; and the stream, where the norm kept an fp32 copy instead
        SavedTensors(component="residual", kept=unscaled, in_forward=(3 if lost else 2) * sizes.stream),
    )
