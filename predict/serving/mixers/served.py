"""A mixer on one GPU of a server: what it keeps of each sequence, and its kernels.

`Served` in the file here that has a mixer's name is its class.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from predict.model.spec import MixerShape, ModelSpec
from predict.serving.server import Server
from sampling.call import Call
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.operators.gemm import Gemm

# Kernels of a step with the group whose factor corrects them.

Group = Literal["gemm", "moe", "attention", "all_reduce", "elementwise"]
GroupedCall = tuple[Group, Call, float]
"""Group, call and how often a layer runs it."""


def products(server: Server, matrices: tuple[Matrix, ...], tokens: int) -> Iterator[GroupedCall]:
    """The products of these matrices on one GPU."""
    for outputs, inputs in products_on_rank(matrices, server.tp).values():
        yield "gemm", Gemm(dtype=server.placement.precision, m=tokens, n=outputs, k=inputs), 1


SLIDING = "sliding"
Kept = Literal["all", "window", "state"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCache:
    """The bytes that one layer keeps of a sequence on one GPU."""

    token_bytes: float = 0.0
    """Per token, of the last `window` ones."""
    window: int = 0
    """Tokens that are kept; 0 for all."""
    sequence_bytes: float = 0.0
    """Whatever the sequence's length: the state of a recurrence."""

    @property
    def keeps(self) -> Kept:
        """The part of a sequence that it keeps."""
        if not self.token_bytes:
            return "state"
        return "window" if self.window else "all"


@dataclass(frozen=True, eq=False)
class ServedMixer:
    """A mixer of so many layers of a server; calls and bytes are those of one layer."""

    server: Server
    shape: Any
    """The mixer's sizes, of the class in `predict/layers` that has its name."""
    window: int
    """Keys that a query sees; 0 for all."""
    layers: int

    @property
    def cache(self) -> LayerCache:
        raise NotImplementedError

    @property
    def score_width(self) -> float:
        """Width of queries and of weighed values, all heads of one GPU together: a decode has twice as many FLOPs per key that it sees."""
        return float(self.shape.score_width(self.server.model)) / self.server.tp

    def token_calls(self, tokens: int) -> Iterator[GroupedCall]:
        """Kernels whose work depends on the number of tokens alone."""
        yield from products(self.server, self.shape.matrices(self.server.model), tokens)

    def decode_calls(self, decodes: int, keys: int) -> Iterator[Call]:
        """The calls that read the cache for one new token of each of `decodes` sequences with so many keys."""
        raise NotImplementedError

    def prefill_calls(self, tokens: int) -> Iterator[Call]:
        """The calls that mix the tokens of a prompt that is computed in one chunk."""
        raise NotImplementedError


def is_served(mixer: MixerShape) -> bool:
    """Whether a file here knows the mixer."""
    return importlib.util.find_spec(f"{__package__}.{mixer.NAME}") is not None


def served_mixers(server: Server) -> tuple[ServedMixer, ...]:
    """The mixers of a server's layers, layers of equal ones together."""
    model = server.model
    kinds = {kind.mixer: kind for kind in model.kinds()}
    return tuple(
        _served_class(model.mixer(kinds[name]))(
            server=server, shape=model.mixer(kinds[name]), window=window_of(model, name), layers=count
        )
        for name, count in Counter(kind.mixer for kind in model.kinds()).items()
    )


def window_of(model: ModelSpec, mixer: str) -> int:
    """Keys that a query sees in layers of a kind of mixer; 0 for all."""
    return model.window if mixer == SLIDING else 0


def _served_class(mixer: MixerShape) -> type[ServedMixer]:
    """The class of a mixer. Raises ModuleNotFoundError where no file here has its name."""
    found: type[ServedMixer] = importlib.import_module(f"{__package__}.{mixer.NAME}").Served
    return found
