"""Tensors that the steps of a forward save for the backward, and the peaks of a sequence of steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from predict.model.spec import ModelSpec
from predict.rank.share import NARROW, RankShare, narrow_item_bytes
from predict.run.memory_profile import MemoryProfile

FP32 = 4
INDEX = 8
"""Bytes of torch's int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The variables of the formulas of the components."""

    rank: RankShare
    profile: MemoryProfile

    @property
    def model(self) -> ModelSpec:
        return self.rank.model

    @property
    def item(self) -> int:
        """Bytes per element of an activation."""
        return self.rank.item_bytes

    @property
    def input_item(self) -> float:
        """Bytes per element of a tensor that is kept only as the input of a product."""
        return narrow_item_bytes(self.rank.run) if self.narrow_inputs else self.item

    @property
    def narrow_inputs(self) -> bool:
        return self.profile.narrow_inputs and self.rank.run.precision in NARROW

    @property
    def fused_norm(self) -> bool:
        return self.profile.fused_norm and self.rank.execution.fuse_rms_norm

    @property
    def fused_softmax(self) -> bool:
        return self.profile.fused_softmax and self.rank.execution.fuse_softmax

    @property
    def tokens(self) -> int:
        """Tokens that pass through the products of a rank."""
        return self.rank.tokens

    @property
    def rows(self) -> int:
        """Tokens that pass through the norms and residuals of a rank."""
        return self.rank.rows

    @property
    def input_rows(self) -> int:
        """Tokens of its input that a column-parallel product keeps; torch's keeps them gathered."""
        return self.rows if self.profile.megatron and self.rank.execution.gather_again else self.tokens

    @property
    def hidden(self) -> int:
        return self.model.hidden

    @property
    def tp(self) -> int:
        return self.rank.plan.tp

    @property
    def stream(self) -> float:
        """Bytes of the residual stream."""
        return self.item * self.rows * self.hidden


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedTensors:
    """Bytes that one step of a forward keeps for the backward, and takes in addition while it runs."""

    component: str
    kept: float
    if_recomputed: Mapping[str, float] = field(default_factory=dict)
    """Bytes kept instead when a module is recomputed, by the name of each module (`plan.recompute_modules`) that contains the step."""
    in_forward: float = 0.0
    """Further bytes while the forward is at this step."""
    in_backward: float = 0.0
    """Further bytes while the backward is at this step."""
    input_of: tuple[str, ...] = ()
    """Products whose weights' gradients alone need what is kept, so that it is not kept where they are frozen and none has an adapter."""
    read_too: float = 0.0
    """Kept bytes that gradients of weights need, and other gradients too."""

    @property
    def for_weights(self) -> float:
        """Kept bytes that the gradients of products' weights need."""
        return self.kept if self.input_of else self.read_too

    def kept_under(self, recomputed: Iterable[str]) -> float:
        if not self.if_recomputed:
            return self.kept
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
        modules = step.if_recomputed.keys() & recomputed
        of_modules = [other for other in saved if modules & other.if_recomputed.keys()] if modules else ()
        again = sum(other.kept - other.kept_under(recomputed) for other in of_modules)
        most = max(most, step.in_backward + again - gone)
        gone += step.kept_under(recomputed)
    return most


def peak_without_graph(saved: Saved) -> float:
    """Upper bound of a forward that keeps nothing for a backward: a component's tensors go when the next one's come."""
    kept = kept_by_component(saved)
    return max((kept.get(step.component, 0.0) + step.in_forward for step in saved), default=0.0)
