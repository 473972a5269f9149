"""Activations that are easy to reckon with, in place of `predict.memory.activations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.model.layer_kinds import LayerKind
from predict.workload.rank.share import RankShare


@dataclass(frozen=True)
class Plain:
    kept: Mapping[str, float]
    forward_working_bytes: float
    backward_working_bytes: float

    @property
    def total(self) -> float:
        return sum(self.kept.values())


class PlainActivations:
    """A layer keeps 34 · tokens · hidden, as recomputed as asked; the head the logits in fp32."""

    def layer_activations(self, rank: RankShare, kind: LayerKind, profile: str, *, recompute: str) -> Plain:
        width = rank.tokens * rank.model.hidden
        layer = 34.0 * width / rank.plan.tp
        kept = {"none": layer, "selective": 0.8 * layer, "full": 2.0 * rank.rows * rank.model.hidden}[recompute]
        return Plain({"layer": kept}, 2.0 * width, 4.0 * width + (layer if recompute == "full" else 0.0))

    def embedding_activations(self, rank: RankShare, profile: str) -> Plain:
        return Plain({"tokens": 8.0 * rank.tokens}, 0.0, 0.0)

    def head_activations(self, rank: RankShare, profile: str) -> Plain:
        logits = 4.0 * rank.tokens * rank.model.vocab / rank.plan.tp
        return Plain({"logits": logits}, logits, 2 * logits)


PLAIN = PlainActivations()
