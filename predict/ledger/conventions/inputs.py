"""Model and batch as every convention takes them, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from predict.huggingface.config_json import load_model
from predict.ledger.conventions.config_keys import MOST
from predict.model.spec import ModelSpec
from sampling.files.faults import Fault, config_error, shown


def require_lengths(lengths: Sequence[int], *, name: str = "lengths") -> None:
    """ConfigError, with every fault, unless each sequence has one token or more."""
    faults = [
        Fault(
            path=f"{name}[{place}]",
            problem=f"{shown(length)} is not a number of tokens; give an integer from 1 to {MOST}",
        )
        for place, length in enumerate(lengths)
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MOST
    ]
    if faults:
        raise config_error(faults, {"": "batch"})


def require_batch(lengths: Sequence[int]) -> None:
    """`require_lengths`, and ConfigError for a batch without a sequence."""
    if not lengths:
        raise config_error([Fault(path="lengths", problem="empty; give one length per sequence")], {"": "batch"})
    require_lengths(lengths)


def read_spec(config: Mapping[str, Any], lengths: Sequence[int], *, convention: str) -> ModelSpec:
    """The model's shape, for a convention that counts full, sliding and linear layers. Raises ConfigError for an unsound batch,
    wherever `load_model` does, and as `require_counted` does."""
    require_batch(lengths)
    spec = load_model(config)
    require_counted(spec, convention)
    return spec


def require_counted(spec: ModelSpec, convention: str) -> None:
    """ConfigError for a model with other mixers than full, sliding and linear attention."""
    others = sorted({kind.mixer for kind in spec.kinds()} - {"full", "sliding", "linear"})
    if others:
        problem = f"{shown(spec.name)} has {', '.join(others)} layers, which the {convention} convention does not count"
        raise config_error([Fault(path="model_type", problem=problem)], {"": "model"})
