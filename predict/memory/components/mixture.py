"""A mixture of experts: router, exchange of tokens, grouped products, combination, and shared experts beside them."""

from __future__ import annotations

from predict.memory.components.dense import activation
from predict.memory.components.norms import normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import FP32, INDEX, Sizes
from predict.model.parts.mixture import Experts
from predict.workload.layers.expert_load import busiest_rank
from predict.workload.layers.mixture import SHARED

MOE = {"moe": 0.0}


def saved_tensors(sizes: Sizes, experts: Experts) -> Saved:
    """Router, dispatch, grouped products, combination, each byte-equal in torch's operators (transformers 5.23, grouped_mm):
    with a softmax router T[e·H + 4E + 12k + 4] + Tk[e(2H + 4Fe) + e + 24] + 4E bytes.

    A rank routes 1/tp of its tokens; its experts receive k·etp rows for each, times the imbalance of `expert_load`.
    """
    plan = sizes.rank.plan
    own_rows = sizes.tokens / sizes.tp
    load = busiest_rank(sizes.rank.execution.expert_load, experts, plan.ep)
    rows = own_rows * experts.topk * plan.etp * load
    shares_input = sizes.model.parallel_residual
    return (
        *normed_input(sizes, "router", is_module=True, shares_input=shares_input, not_only_products=True),
        _router(sizes, experts, own_rows),
        *_routed(sizes, experts, own_rows, rows),
        *_shared(sizes, experts),
    )


def _grouped_router(sizes: Sizes) -> bool:
    """Whether the router is DeepSeek's sigmoid router with groups, which comes with latent attention."""
    return sizes.model.latent is not None


def _router(sizes: Sizes, experts: Experts, rows: float) -> SavedTensors:
    """Hugging Face's softmax router: fp32 probabilities, indices, chosen weights and their sum, T(4E + 12k + 4). DeepSeek-V3's
    in fp32: copies of its 16-bit weight and input, sigmoids, a mask and the indices of groups, 4EH + T(4H + 5E + 16·groups +
    8·chosen + 12k + 4). Megatron-Core (moe_utils.py): fp32 logits and probabilities and their map, 9E per token."""
    count, chosen = experts.count, (INDEX + FP32) * experts.topk + FP32
    if sizes.profile.megatron:
        kept = rows * (2 * FP32 + 1) * count
    elif _grouped_router(sizes):
        copies = FP32 * (count + rows) * sizes.hidden if sizes.item < FP32 else 0.0
        groups = 2 * INDEX * experts.groups + INDEX * experts.topk_groups
        kept = copies + rows * ((FP32 + 1) * count + groups + chosen)
    else:
        kept = rows * (FP32 * count + chosen)
    return SavedTensors(component="router", kept=kept, if_recomputed=MOE)


def _routed(sizes: Sizes, experts: Experts, own_rows: float, rows: float) -> Saved:
    """The routed experts of a rank: their input, the tensors between the products, and the maps of rows there and back.

    Where rows are weighted after the experts, their outputs and weights are kept. The exchange of tokens keeps nothing.
    """
    plan, item = sizes.rank.plan, sizes.item
    weighted = sizes.profile.weighted_activation
    offsets = 0.0 if weighted else FP32 * experts.count / plan.ep
    maps = INDEX * own_rows * experts.topk if weighted else 3 * INDEX * rows
    weight_item = FP32 if weighted or _grouped_router(sizes) else item
    tensor = rows * sizes.hidden
    moved = tensor * (item if weighted else weight_item)
    width = experts.ffn // plan.etp
    return (
        SavedTensors(
            component="permute",
            kept=maps + offsets + weight_item * rows,
            if_recomputed=MOE,
            in_forward=2 * item * tensor,
        ),
        SavedTensors(
            component="experts", kept=sizes.input_item * tensor, if_recomputed=MOE, in_backward=2 * item * tensor
        ),
        *activation(
            sizes,
            "experts",
            rows,
            width,
            gated=experts.gated,
            modules=("moe",),
            activation_module="moe_act",
            weighted=weighted,
        ),
        SavedTensors(
            component="experts",
            kept=0.0 if weighted else item * tensor,
            if_recomputed=MOE,
            in_forward=2 * moved,
            in_backward=2 * moved,
        ),
    )


def _shared(sizes: Sizes, experts: Experts) -> Saved:
    """Shared experts read the router's input; their gate keeps its sigmoid and the output that it weighs."""
    if not experts.shared_ffn:
        return ()
    gate = sizes.item * sizes.tokens * (1 + sizes.hidden) if experts.shared_gate else 0.0
    width = experts.shared_ffn // sizes.tp
    return (
        *activation(sizes, SHARED, sizes.tokens, width, gated=experts.gated, modules=(SHARED, "moe")),
        SavedTensors(component=SHARED, kept=gate, if_recomputed=MOE),
    )
