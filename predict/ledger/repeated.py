"""Shares of the forward that recomputation repeats, by part and kind of layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from predict.ledger.conventions.parts import CORES, ENDS, Part
from predict.model.spec import LayerKind, ModelSpec
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun

Shares = Mapping[tuple[Part, str], float]
"""Part and name of the kind of layer (empty outside of layers) → share of its forward that a backward repeats."""
OF_MODULE: Mapping[str, tuple[Part, ...]] = {
    "core_attn": CORES,
    "mlp": ("dense_feed_forward",),
    "moe": ("router", "expert_feed_forward", "shared_expert"),
    "shared_experts": ("shared_expert",),
}
"""Module of selective recomputation → its parts. Norms and activations have no products; `mla_up_proj` repeats some of the
projections."""
UPWARD = ("q_up", "kv_up")
"""Products of latent attention that `mla_up_proj` repeats; without compressed queries theirs is no way up."""
IN_LAYERS: tuple[Part, ...] = tuple(part for part in get_args(Part) if part not in (*ENDS, "mtp"))
HALF = 0.5
"""Share of the products that recomputation by operators repeats: every second one."""


def repeated_forward(run: TrainingRun) -> Shares:
    """The shares of a run; none where it repeats nothing. Layers of multi-token prediction are never repeated."""
    if run.plan.recompute == "full":
        return _whole_layers(run)
    kinds = dict.fromkeys(run.model.kinds())
    return {(part, kind.name): share for kind in kinds for part, share in _parts(run, kind).items()}


def _whole_layers(run: TrainingRun) -> Shares:
    """Full recomputation, of all layers or of the first ones of each chunk, and of the head where a framework repeats it."""
    taken: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for stage in (stage for of_rank in stages_of_ranks(run) for stage in of_rank):
        held.update(kind.name for kind in stage.kinds)
        taken.update(kind.name for kind in stage.kinds[: run.plan.fully_recomputed(len(stage.kinds))])
    shares: dict[tuple[Part, str], float] = {
        (part, name): taken[name] / many for name, many in held.items() for part in IN_LAYERS
    }
    if run.execution.recompute_ends:
        shares["head_and_loss", ""] = 1.0
    return shares


def _parts(run: TrainingRun, kind: LayerKind) -> dict[Part, float]:
    if run.plan.recompute == "ops":
        return {part: HALF for part in IN_LAYERS if part not in CORES}
    modules = run.plan.modules_recomputed
    shares = {part: 1.0 for module in modules for part in OF_MODULE.get(module, ())}
    if "mla_up_proj" in modules:
        shares["attention_projections"] = _upward_share(run.model, kind)
    return shares


def _upward_share(model: ModelSpec, kind: LayerKind) -> float:
    """Share of latent attention's projections that lead up from what is compressed; 0 for other attention."""
    if model.latent is None:
        return 0.0
    products = {matrix.product: matrix.elements for matrix in model.mixer(kind).matrices(model)}
    upward = UPWARD if "q_down" in products else UPWARD[1:]
    return sum(products[product] for product in upward) / sum(products.values())
