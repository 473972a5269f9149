"""Tensors that the steps of a forward save for the backward, and the peaks of a sequence of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedTensors:
    """Bytes that one step of a forward keeps for the backward, and takes beside them while it runs."""

    component: str
    kept: float
    if_recomputed: Mapping[str, float] = field(default_factory=dict)
    """Bytes kept instead when a module is recomputed, by the name of each module (`plan.recompute_modules`) that contains the step."""
    in_forward: float = 0.0
    """Further bytes while the forward is at this step."""
    in_backward: float = 0.0
    """Further bytes while the backward is at this step."""

    def kept_under(self, recomputed: Iterable[str]) -> float:
        return min([self.kept, *(self.if_recomputed[name] for name in recomputed if name in self.if_recomputed)])


Saved = tuple[SavedTensors, ...]
"""The steps of a forward in their order."""


def kept_by_component(saved: Saved, recomputed: Sequence[str] = ()) -> dict[str, float]:
    """Bytes kept by each component that keeps any, under selective recomputation of the modules `recomputed`."""
    found: dict[str, float] = {}
    for step in saved:
        found[step.component] = found.get(step.component, 0.0) + step.kept_under(recomputed)
    return {component: size for component, size in found.items() if size}


def forward_peak_beyond_kept(saved: Saved, recomputed: Sequence[str] = ()) -> float:
    """The peak of the forward: while a step runs, what it will discard still exists; what later steps keep does not yet."""
    most = later = 0.0
    for step in reversed(saved):
        kept = step.kept_under(recomputed)
        most = max(most, step.in_forward + step.kept - kept - later)
        later += kept
    return most


def backward_peak_beyond_kept(saved: Saved, recomputed: Sequence[str] = ()) -> float:
    """The peak of the backward: at a step, what later steps kept is gone, and the step's whole recomputed module exists again."""
    most = gone = 0.0
    for step in reversed(saved):
        modules = {name for name in recomputed if name in step.if_recomputed}
        again = sum(other.kept - other.kept_under(recomputed) for other in saved if modules & set(other.if_recomputed))
        most = max(most, step.in_backward + again - gone)
        gone += step.kept_under(recomputed)
    return most


def peak_without_graph(saved: Saved) -> float:
    """Upper bound of a forward that keeps nothing for a backward: a component's tensors go when the next one's come."""
    kept = kept_by_component(saved)
    return max((kept.get(step.component, 0.0) + step.in_forward for step in saved), default=0.0)
