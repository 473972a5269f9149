"""Activations: the bytes on one rank that one microbatch's forward keeps for its backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from predict.layers.attention import CORE, heads_on_rank, rotary_bytes
from predict.layers.embedding import saved_by_embedding
from predict.layers.head import saved_by_head, saved_by_joining
from predict.layers.norms import keeps_its_input, norm, residual
from predict.layers.part import parts_of
from predict.layers.saved_tensors import (
    FP32,
    Saved,
    Sizes,
    backward_peak_beyond_kept,
    forward_peak_beyond_kept,
    kept_by_component,
    peak_without_graph,
)
from predict.memory.units import Unit
from predict.model.spec import LayerKind
from predict.rank.share import RankShare
from predict.run.memory_profile import MemoryProfile
from sampling.cells.matrices import Matrix

ROTARY_TABLES = "rope"
"""The component that all layers of one forward share: one storage, to which each of them refers."""
OUTSIDE_LAYERS: Mapping[str, Callable[[Sizes], Saved]] = {
    "embedding": saved_by_embedding,
    "joining": saved_by_joining,
    "head": saved_by_head,
}
"""The tensors of a unit that is not a layer, by its role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes that one unit keeps of one microbatch until its backward, and its working sets beside them.

    The residual stream counts where a norm keeps it as its input, and nowhere else. Gradients of weights are not included.
    """

    components: Mapping[str, float]
    """Kept bytes by component."""
    forward_working_bytes: float
    """Peak of the forward beyond the kept bytes."""
    backward_working_bytes: float
    """Peak of the backward beyond the kept bytes: gradients of activations, and the tensors of a repeated forward."""

    @property
    def kept_bytes(self) -> float:
        return sum(self.components.values())

    @property
    def kept_without_rotary_bytes(self) -> float:
        """Bytes kept by a layer after the first, which keeps the rotary tables for all of them."""
        return self.kept_bytes - self.components.get(ROTARY_TABLES, 0.0)


def unit_activations(rank: RankShare, profile: MemoryProfile, unit: Unit) -> Activations:
    """The activations of a unit of a chunk, recomputed as the unit says."""
    if unit.kind is not None:
        return layer_activations(rank, unit.kind, profile, recompute=unit.recompute)
    sizes = Sizes(rank=rank, profile=profile)
    return _activations(sizes, OUTSIDE_LAYERS[unit.role](sizes))


def layer_activations(rank: RankShare, kind: LayerKind, profile: MemoryProfile, *, recompute: str) -> Activations:
    """One layer under recompute `none`, `selective` (of `rank.plan.modules_recomputed`), `ops` or `full`.

    Full recomputation keeps the layer's input, e·T·H bytes, and the rotary tables, which are its arguments
    (torch.utils.checkpoint; Korthikanti et al., arXiv 2205.05198, table 2); by operators (`ops`) it keeps their outputs too that
    are not repeated; selective recomputation keeps the inputs of each recomputed module.
    """
    sizes = Sizes(rank=rank, profile=profile)
    saved = _layer(sizes, kind)
    if recompute in ("full", "ops"):
        return _repeated(sizes, saved, kept_outputs(sizes, kind) if recompute == "ops" else {})
    return _activations(sizes, saved, rank.plan.modules_recomputed if recompute == "selective" else ())


def _layer(sizes: Sizes, kind: LayerKind) -> Saved:
    """Mixer and feed-forward, each from its norm to its addition to the residual stream."""
    model = sizes.model
    output_norm = (norm(sizes),) if model.norms_a_layer > 2 else ()
    mixer, feed_forward = (part.saved_tensors(sizes) for part in parts_of(model, kind))
    return (
        *mixer,
        *output_norm,
        *residual(sizes, last=False),
        *feed_forward,
        *output_norm,
        *residual(sizes, last=True),
    )


def _activations(sizes: Sizes, saved: Saved, recomputed: Sequence[str] = ()) -> Activations:
    # the gradient of the residual stream exists throughout the backward
    return Activations(
        components=kept_by_component(saved, recomputed),
        forward_working_bytes=forward_peak_beyond_kept(saved, recomputed),
        backward_working_bytes=sizes.stream + backward_peak_beyond_kept(saved, recomputed),
    )


def _repeated(sizes: Sizes, saved: Saved, outputs: Mapping[str, float]) -> Activations:
    """A layer whose forward the backward repeats from its input, except for the operators whose `outputs` are kept."""
    own = sum(step.kept for step in saved if step.component != ROTARY_TABLES)
    kept = {"residual": float(sizes.stream), ROTARY_TABLES: rotary_bytes(sizes), **outputs}
    # the repeated forward keeps everything again, except the tensors that the checkpoint holds
    again = own - (sizes.stream if keeps_its_input(sizes) else 0.0) - sum(outputs.values())
    return Activations(
        components={component: size for component, size in kept.items() if size},
        # beside the stream after attention, the layer's input is all that stays
        forward_working_bytes=sizes.stream + peak_without_graph(saved),
        backward_working_bytes=again
        + max(forward_peak_beyond_kept(saved), sizes.stream + backward_peak_beyond_kept(saved)),
    )


def kept_outputs(sizes: Sizes, kind: LayerKind) -> dict[str, float]:
    """Bytes by component. torchtitan (activation_checkpoint.py, `_get_custom_policy`) counts the products of a layer in the
    order in which they run and repeats the second, the fourth and so on; of attention it keeps output and log-sum-exp, where
    one kernel computes it."""
    model, tp = sizes.model, sizes.tp
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    products = [each for each in (*mixer.matrices(model), *feed_forward.matrices(model)) if each.is_linear]
    found = {"products": sum(_output(sizes, each) for each in products[::2])}
    if sizes.rank.execution.attention != "unfused" and not mixer.IS_RECURRENT:
        heads, _ = heads_on_rank(model, tp)
        found[CORE] = sizes.tokens * heads * (sizes.item * mixer.value_dim_of(model) + FP32)
    return found


def _output(sizes: Sizes, product: Matrix) -> float:
    """The output of a product; where tp divides its inputs, of the sum that sequence parallelism scatters."""
    rows = sizes.rows if product.split == "inputs" else sizes.tokens
    return float(sizes.item * rows * product.on_rank(sizes.tp).outputs)
