"""Activations: the bytes on one rank that one microbatch's forward keeps for its backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from predict.memory.components.ends import embedding_parts, head_parts, joining_parts
from predict.memory.components.feed_forward import feed_forward_parts
from predict.memory.components.mixers import mixer_parts, rotary_bytes
from predict.memory.components.norms import branch_norm_part, keeps_its_input
from predict.memory.components.part import (
    Parts,
    backward_peak_beyond_kept,
    forward_peak_beyond_kept,
    kept_by_component,
    most_inside_one_component,
)
from predict.memory.components.share import Share
from predict.memory.memory_profile import MemoryProfile
from predict.memory.units import Unit
from predict.model.layer_kinds import LayerKind
from predict.workload.rank.share import RankShare

ROTARY_TABLES = "rope"
"""The component that all layers of one forward share: one storage, to which each of them refers."""


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

    def without_rotary_tables(self) -> Activations:
        """The activations of a layer after the first, which holds the tables already."""
        own = {name: size for name, size in self.components.items() if name != ROTARY_TABLES}
        return replace(self, components=own)


def unit_activations(rank: RankShare, profile: MemoryProfile, unit: Unit) -> Activations:
    """The activations of a unit of a chunk, recomputed as the unit says."""
    if unit.kind is not None:
        return layer_activations(rank, unit.kind, profile, recompute=unit.recompute)
    of_role = {"embedding": embedding_parts, "head": head_parts, "joining": joining_parts}
    share = Share(rank=rank, profile=profile)
    return _activations(share, of_role[unit.role](share))


def layer_activations(rank: RankShare, kind: LayerKind, profile: MemoryProfile, *, recompute: str) -> Activations:
    """One layer under recompute `none`, `selective` (of `rank.plan.modules_recomputed`) or `full`.

    Full recomputation keeps the layer's input, e·T·H bytes, and the rotary tables, which are its arguments
    (torch.utils.checkpoint; Korthikanti et al., arXiv 2205.05198, table 2); selective recomputation keeps the inputs of each
    recomputed module.
    """
    share = Share(rank=rank, profile=profile)
    parts = _layer_parts(share, kind)
    if recompute == "full":
        return _fully_recomputed(share, parts)
    return _activations(share, parts, rank.plan.modules_recomputed if recompute == "selective" else ())


def _layer_parts(share: Share, kind: LayerKind) -> Parts:
    mixer, feed_forward = mixer_parts(share, kind), feed_forward_parts(share, kind)
    if share.rank.model.norms_a_layer > 2:
        after = branch_norm_part(share)
        return (*mixer[:-2], after, *mixer[-2:], *feed_forward[:-2], after, *feed_forward[-2:])
    return (*mixer, *feed_forward)


def _activations(share: Share, parts: Parts, recomputed: Sequence[str] = ()) -> Activations:
    # the gradient of the residual stream exists throughout the backward
    return Activations(
        components=kept_by_component(parts, recomputed),
        forward_working_bytes=forward_peak_beyond_kept(parts, recomputed),
        backward_working_bytes=share.stream + backward_peak_beyond_kept(parts, recomputed),
    )


def _fully_recomputed(share: Share, parts: Parts) -> Activations:
    own = sum(part.kept for part in parts if part.component != ROTARY_TABLES)
    kept = {"residual": float(share.stream), ROTARY_TABLES: rotary_bytes(share)}
    # the repeated forward keeps everything again, except the tensors that the checkpoint holds
    again = own - (share.stream if keeps_its_input(share) else 0.0)
    return Activations(
        components={component: size for component, size in kept.items() if size},
        # beside the stream after attention, the layer's input is all that stays
        forward_working_bytes=share.stream + most_inside_one_component(parts),
        backward_working_bytes=again
        + max(forward_peak_beyond_kept(parts), share.stream + backward_peak_beyond_kept(parts)),
    )
