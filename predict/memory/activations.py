"""Activations: bytes on one rank that one microbatch's forward leaves until its backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from predict.memory.unit_activations import SHARED_BY_LAYERS
from predict.model.layer_kinds import LayerKind
from predict.workload.rank.share import RankShare


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes that one microbatch's forward leaves until its backward, and the most held beside them for a while.

    The residual stream is counted where a norm keeps it as its input, and nowhere else. Gradients of weights are not here.
    """

    kept: Mapping[str, float]
    """By component."""
    forward_working_bytes: float
    """Most held at once during the forward beyond what is kept."""
    backward_working_bytes: float
    """Most held at once during the backward beyond it: gradients of activations, and what a repeated forward brings."""

    @property
    def total(self) -> float:
        return sum(self.kept.values())


def layer_activations(rank: RankShare, kind: LayerKind, profile: MemoryProfile, *, recompute: str) -> Activations:
    """One layer under recompute `none`, `selective` (of `rank.plan.modules_recomputed`) or `full`.

    Full recomputation keeps the layer's input, e·T·H, and the rotary tables that are its arguments (torch.utils.checkpoint;
    Korthikanti et al., arXiv 2205.05198, table 2), and selective what each module's inputs are.
    """
    share = Share(rank=rank, profile=profile)
    parts = _layer_parts(share, kind)
    if recompute == "full":
        return _fully_recomputed(share, parts)
    return _activations(share, parts, rank.plan.modules_recomputed if recompute == "selective" else ())


def embedding_activations(rank: RankShare, profile: MemoryProfile) -> Activations:
    """The embedding, whose output is the first layer's to keep."""
    share = Share(rank=rank, profile=profile)
    return _activations(share, embedding_parts(share))


def head_activations(rank: RankShare, profile: MemoryProfile) -> Activations:
    """Final norm, logits and loss of one prediction."""
    share = Share(rank=rank, profile=profile)
    return _activations(share, head_parts(share))


def joining_activations(rank: RankShare, profile: MemoryProfile) -> Activations:
    """What every further token that is predicted takes before its layer and head: two norms and a product."""
    share = Share(rank=rank, profile=profile)
    return _activations(share, joining_parts(share))


def _layer_parts(share: Share, kind: LayerKind) -> Parts:
    mixer, feed_forward = mixer_parts(share, kind), feed_forward_parts(share, kind)
    if share.rank.model.norms_a_layer > 2:
        after = branch_norm_part(share)
        return (*mixer[:-2], after, *mixer[-2:], *feed_forward[:-2], after, *feed_forward[-2:])
    return (*mixer, *feed_forward)


def _activations(share: Share, parts: Parts, recomputed: Sequence[str] = ()) -> Activations:
    # the gradient of the residual stream goes along all the way
    return Activations(
        kept=kept_by_component(parts, recomputed),
        forward_working_bytes=forward_peak_beyond_kept(parts, recomputed),
        backward_working_bytes=share.stream + backward_peak_beyond_kept(parts, recomputed),
    )


def _fully_recomputed(share: Share, parts: Parts) -> Activations:
    own = sum(part.kept for part in parts if part.component not in SHARED_BY_LAYERS)
    kept = {"residual": float(share.stream), "rope": rotary_bytes(share)}
    # the repeated forward keeps everything once more, but for the tensors that the checkpoint holds
    again = own - (share.stream if keeps_its_input(share) else 0.0)
    return Activations(
        kept={component: size for component, size in kept.items() if size},
        # beside the stream after attention, where the layer's input is all that stays
        forward_working_bytes=share.stream + most_inside_one_component(parts),
        backward_working_bytes=again
        + max(forward_peak_beyond_kept(parts), share.stream + backward_peak_beyond_kept(parts)),
    )
