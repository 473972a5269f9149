"""What a dense MLP and a mixture of experts keep for their backward."""

from __future__ import annotations

from predict.memory.components.norms import input_part, norm_part, residual_parts
from predict.memory.components.part import Part, Parts
from predict.memory.components.share import FP32, INDEX, Share
from predict.model.layer_kinds import LayerKind
from predict.model.parts.mixture import Experts
from predict.workload.layers.expert_load import busiest_rank
from predict.workload.layers.mixture import SHARED

GROUPS, GROUPS_CHOSEN = 8, 4
"""DeepSeek-V3's router picks experts in 4 of 8 groups (arXiv 2412.19437, section 4.2); no field of a model says so."""


def feed_forward_parts(share: Share, kind: LayerKind) -> Parts:
    model = share.rank.model
    experts = model.experts if kind.sparse else None
    own = _mixture(share, experts) if experts else _dense(share)
    norm = norm_part(share, shares_input=model.parallel_residual, separate=kind.sparse)
    return (norm, *own, *residual_parts(share, last=True))


def _dense(share: Share) -> Parts:
    """Gated: T·e(H + 4F) in torch's operators, T·e(H + 3F) where product and nonlinearity are one; else T·e(H + 2F). F is
    divided by tp (byte-equal facts of 2026)."""
    width = share.rank.model.ffn // share.tp
    gated = share.rank.model.gated
    return (
        input_part(share, "mlp", separate_norm=False),
        *activated(share, "mlp", share.tokens, width, gated=gated, names=("mlp",)),
    )


def activated(
    share: Share,
    component: str,
    rows: float,
    width: float,
    *,
    gated: bool,
    names: tuple[str, ...],
    activation: str = "",
) -> Parts:
    """What lies between the products of an MLP; `names` are modules whose recomputation drops all of it, `activation` one
    that drops only what the nonlinearity brings: its result in torch, in Megatron-Core the second product's input."""
    before = share.item * rows * width * (2 if gated else 1)
    result = share.item * rows * width if gated and not share.profile.fused_activation else 0.0
    after = share.input_item * rows * width
    whole = dict.fromkeys(names, 0.0)
    own = {activation: 0.0} if activation else {}
    discarded = own if share.profile.frees_recomputed_outputs else {}
    return (
        Part(component=component, kept=before, left=whole),
        Part(component=component, kept=result, left=whole | own),
        # the results' gradient becomes two where it is gated, and the result itself is gone by then
        Part(component=component, kept=after, left=whole | discarded, gradients=before),
    )


def _mixture(share: Share, experts: Experts) -> Parts:
    """Router, dispatch, grouped products, combination, each byte-equal in torch's operators (transformers 5.23, grouped_mm):
    softmax router T[e·H + 4E + 12k + 4] + Tk[e(2H + 4Fe) + e + 24] + 4E.

    A rank routes 1/tp of its tokens, and its experts get k·etp rows for each, times the skew of `expert_load`.
    """
    rank = share.rank
    own_rows = share.tokens / share.tp
    load = busiest_rank(rank.execution.expert_load, experts, rank.plan.ep)
    rows = own_rows * experts.topk * rank.plan.etp * load
    inputs = input_part(share, "router", separate_norm=True, wide=True)
    return (
        inputs,
        _router(share, experts, own_rows),
        *_routed(share, experts, own_rows, rows),
        *_shared(share, experts),
    )


def grouped_router(share: Share) -> bool:
    """DeepSeek's sigmoid router with groups, which comes with its latent attention."""
    return share.rank.model.latent is not None


def _router(share: Share, experts: Experts, rows: float) -> Part:
    """Hugging Face's softmax router: fp32 probabilities, indices, chosen weights and their sum, T(4E + 12k + 4). DeepSeek-V3's
    in fp32: its weight and input again, sigmoids, a mask and the groups' indices, 4EH + T(4H + 5E + 16·groups + 8·chosen +
    12k + 4); that copy of the weight only from 16 bits. Megatron-Core (moe_utils.py): fp32 logits, probabilities, and the
    map of them, 9E."""
    count, chosen = experts.count, (INDEX + FP32) * experts.topk + FP32
    if share.profile.megatron:
        kept = rows * (2 * FP32 + 1) * count
    elif grouped_router(share):
        copies = FP32 * (count + rows) * share.hidden if share.item < FP32 else 0.0
        groups = 2 * INDEX * GROUPS + INDEX * GROUPS_CHOSEN
        kept = copies + rows * ((FP32 + 1) * count + groups + chosen)
    else:
        kept = rows * (FP32 * count + chosen)
    return Part(component="router", kept=kept, left={"moe": 0.0})


def _routed(share: Share, experts: Experts, own_rows: float, rows: float) -> Parts:
    """Rows of this rank's experts: their input, what lies between the products, and the maps there and back.

    Megatron-Core weighs rows inside the activation, so that no expert's output is kept (moe/experts.py); others keep it and
    its weight. Both exchange tokens without keeping what they sent.
    """
    rank, item = share.rank, share.item
    weighted = share.profile.weighted_activation
    width = experts.ffn // rank.plan.etp
    moe = {"moe": 0.0}
    offsets = 0.0 if weighted else FP32 * experts.count / rank.plan.ep
    maps = INDEX * own_rows * experts.topk if weighted else 3 * INDEX * rows
    wide = FP32 if weighted or grouped_router(share) else item
    outputs = 0.0 if weighted else item * rows * share.hidden
    moved = rows * share.hidden * (item if weighted else wide)
    return (
        Part(component="permute", kept=maps + offsets + wide * rows, left=moe, passing=2 * item * rows * share.hidden),
        Part(
            component="experts",
            kept=share.input_item * rows * share.hidden,
            left=moe,
            gradients=2 * item * rows * share.hidden,
        ),
        *activated(share, "experts", rows, width, gated=experts.gated, names=("moe",), activation="moe_act"),
        Part(component="experts", kept=outputs, left=moe, passing=2 * moved, gradients=2 * moved),
    )


def _shared(share: Share, experts: Experts) -> Parts:
    """They read the router's input; a gate keeps its sigmoid and the output that it weighs."""
    if not experts.shared_ffn:
        return ()
    names = (SHARED, "moe")
    gate = share.item * share.tokens * (1 + share.hidden) if experts.shared_gate else 0.0
    width = experts.shared_ffn // share.tp
    return (
        *activated(share, SHARED, share.tokens, width, gated=experts.gated, names=names),
        Part(component=SHARED, kept=gate, left={"moe": 0.0}),
    )
