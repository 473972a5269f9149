"""The kinds of layer that a decoder may mix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """The traits by which layers of one model differ."""

    mixer: str = "full"
    """Attention over all earlier tokens (full), over the last `window` of them (sliding), linear attention (linear), or the
    name of another mixer in `predict/model/parts`."""
    sparse: bool = False
    """The feed-forward is a mixture of experts, or whichever the model has in place of the dense MLP."""

    @property
    def name(self) -> str:
        """The name in benchmarks and reports: full_dense, full_moe, sliding_dense, …"""
        return f"{self.mixer}_{'moe' if self.sparse else 'dense'}"


DENSE = LayerKind()
