"""A dense MLP."""

from __future__ import annotations

from predict.memory.components.norms import normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import Sizes
from predict.model.parts.dense import Dense


def saved_tensors(sizes: Sizes, mlp: Dense) -> Saved:
    """Gated: T·e(H + 4F) bytes in torch's operators, T·e(H + 3F) where product and nonlinearity are one; otherwise T·e(H + 2F),
    with F per rank (byte-equal, torch 2.13)."""
    model = sizes.model
    return (
        *normed_input(sizes, "mlp", is_module=False, shares_input=model.parallel_residual),
        *activation(sizes, "mlp", sizes.tokens, model.ffn // sizes.tp, gated=model.gated, modules=("mlp",)),
    )


def activation(
    sizes: Sizes,
    component: str,
    rows: float,
    width: float,
    *,
    gated: bool,
    modules: tuple[str, ...],
    activation_module: str = "",
    weighted: bool = False,
) -> Saved:
    """The tensors between the products of an MLP.

    `modules` drop all of them when recomputed; `activation_module` drops what the nonlinearity brings: its result in torch, the
    second product's input in Megatron-Core. `weighted`: each row is multiplied by its weight before the second product, which one
    kernel does with a gated nonlinearity alone (Megatron-Core, moe/experts.py).
    """
    inputs = sizes.item * rows * width * (2 if gated else 1)
    kept_between = not sizes.profile.fused_activation if gated else weighted
    result = sizes.item * rows * width if kept_between else 0.0
    output = sizes.input_item * rows * width
    all_dropped = dict.fromkeys(modules, 0.0)
    dropped = {activation_module: 0.0} if activation_module else {}
    freed = dropped if sizes.profile.frees_recomputed_outputs else {}
    return (
        SavedTensors(component=component, kept=inputs, if_recomputed=all_dropped),
        SavedTensors(component=component, kept=result, if_recomputed=all_dropped | dropped),
        # the gradient of a gated result becomes two, and the result itself is gone by then
        SavedTensors(component=component, kept=output, if_recomputed=all_dropped | freed, in_backward=inputs),
    )
