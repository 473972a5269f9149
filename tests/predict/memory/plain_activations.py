"""Activations that are easy to reckon with, in place of `predict.memory.activations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.model.layer_kinds import LayerKind
from predict.workload.layers.local import Local


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

    def layer_activations(self, local: Local, kind: LayerKind, profile: str, *, recompute: str) -> Plain:
        width = local.tokens * local.model.hidden
        layer = 34.0 * width / local.plan.tp
        kept = {"none": layer, "selective": 0.8 * layer, "full": 2.0 * local.rows * local.model.hidden}[recompute]
        return Plain({"layer": kept}, 2.0 * width, 4.0 * width + (layer if recompute == "full" else 0.0))

    def embedding_activations(self, local: Local, profile: str) -> Plain:
        return Plain({"tokens": 8.0 * local.tokens}, 0.0, 0.0)

    def head_activations(self, local: Local, profile: str) -> Plain:
        logits = 4.0 * local.tokens * local.model.vocab / local.plan.tp
        return Plain({"logits": logits}, logits, 2 * logits)


PLAIN = PlainActivations()
