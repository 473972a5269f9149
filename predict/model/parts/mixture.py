"""A mixture of experts in place of the MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from predict.model.parts.part import FeedForward
from sampling.cells.matrices import Matrix, mlp_matrices

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts(FeedForward):
    """A router, `count` MLPs of which a token sees `topk`, and shared ones that see every token."""

    NAME: ClassVar[str] = "mixture"

    count: int
    """Experts, of which a token is sent to `topk`."""
    topk: int
    """Experts that each token is sent to."""
    ffn: int
    """Inner width of one expert."""
    shared_ffn: int = 0
    """Inner width of the experts that see every token, all of them together; 0 without any."""
    gated: bool = True
    """SwiGLU-like experts of three matrices, else of two."""
    shared_gate: bool = False
    """A gate [1, hidden] weighs the shared experts' output."""
    bias: bool = False
    """Biases on the matrices of the experts."""
    router_bias: bool = False
    clamped: bool = False
    """The activation's inputs are clamped first (`swiglu_limit` of GPT-OSS)."""
    groups: int = 1
    """Groups of experts in order, of which the router chooses some first (`n_group` of DeepSeek's config.json)."""
    topk_groups: int = 1
    """Groups that each token's experts come from (`topk_group`)."""

    @property
    def into(self) -> int:
        """Matrices of an expert from the hidden width to its own."""
        return 2 if self.gated else 1

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The router, which every rank holds whole, the shared experts and their gate."""
        return (*self.routers(model), *self.shared_matrices(model))

    def routers(self, model: ModelSpec) -> tuple[Matrix, ...]:
        router = Matrix(
            product="router", outputs=self.count, inputs=model.hidden, bias=self.router_bias, is_linear=False
        )
        gate = Matrix(product="shared_gate", outputs=1, inputs=model.hidden, is_linear=False)
        return (router, gate) if self.shared_gate else (router,)

    def shared_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        if not self.shared_ffn:
            return ()
        return mlp_matrices(hidden=model.hidden, width=self.shared_ffn, gated=self.gated)

    def expert_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return mlp_matrices(hidden=model.hidden, width=self.ffn, gated=self.gated, bias=self.bias)

    def elements_per_token(self, model: ModelSpec) -> int:
        routed = self.topk * sum(matrix.elements for matrix in self.expert_matrices(model))
        return FeedForward.elements_per_token(self, model) + routed

    def routed_parameters(self, model: ModelSpec) -> int:
        return self.count * self._expert_parameters(model)

    def idle_parameters(self, model: ModelSpec) -> int:
        return (self.count - self.topk) * self._expert_parameters(model)

    def _expert_parameters(self, model: ModelSpec) -> int:
        return sum(matrix.parameters for matrix in self.expert_matrices(model))
