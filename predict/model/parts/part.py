"""The parts that a layer is made of, a mixer and a feed-forward, by their shapes; one file per part, found by its name.

The name of a part is that of its file here, of its file of calls in `predict/workload/layers`, and of its file of activations
in `predict/memory/components`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, ClassVar

from sampling.cells.matrices import Matrix

if TYPE_CHECKING:
    from predict.model.spec import ModelSpec


class LayerPart:
    """The shape of a mixer or a feed-forward. Parameters are those of one whole layer, before anything divides them."""

    __slots__ = ()
    NAME: ClassVar[str]

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The weights that multiply every token."""
        raise NotImplementedError

    def other_parameters(self, model: ModelSpec) -> int:
        """Parameters outside of all matrices, such as the scales of inner norms; tensor parallelism divides them."""
        return 0

    def parameters(self, model: ModelSpec) -> int:
        return sum(matrix.parameters for matrix in self.matrices(model)) + self.other_parameters(model)

    def elements_per_token(self, model: ModelSpec) -> int:
        """Elements of the matrices that multiply one token."""
        return sum(matrix.elements for matrix in self.matrices(model))


class Mixer(LayerPart):
    """The part of a layer in which tokens of a sequence meet."""

    __slots__ = ()

    def score_width(self, model: ModelSpec) -> int:
        """Width, over all heads, of the scores of a query with a key and of the values they weigh; 0 without attention."""
        return 0

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Forward and backward FLOPs per token of a recurrence's state."""
        return 0.0


class FeedForward(LayerPart):
    """The part of a layer that sees one token at a time."""

    __slots__ = ()

    def expert_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The weights of one routed expert; none without experts."""
        return ()

    def routed_parameters(self, model: ModelSpec) -> int:
        """All routed experts."""
        return 0

    def idle_parameters(self, model: ModelSpec) -> int:
        """Those of the routed experts that one token is not sent to."""
        return 0

    def parameters(self, model: ModelSpec) -> int:
        return LayerPart.parameters(self, model) + self.routed_parameters(model)


def part_class(name: str) -> type[LayerPart]:
    """The class of the part in the file of this name. Raises ModuleNotFoundError without such a file."""
    module = importlib.import_module(f"{__package__}.{name}")
    return next(
        of
        for of in vars(module).values()
        if isinstance(of, type) and issubclass(of, LayerPart) and vars(of).get("NAME") == name
    )
