"""The `model` section of a run config for a ModelSpec: a shipped model's name, or the keys of a `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from predict.huggingface.config_json import load_model, read_model
from predict.huggingface.families import FAMILIES
from predict.huggingface.families.family import Family
from predict.layers.mixture import Mixture
from predict.layers.registry import sizes_of
from predict.model.shipped import shipped_model, shipped_models
from predict.model.spec import DENSE, ModelSpec

ACTIVATIONS: Mapping[bool, str] = {True: "silu", False: "gelu_new"}
"""An activation of each kind, gated or not: which one it is changes no cost."""


def model_section(spec: ModelSpec) -> str | dict[str, Any] | None:
    """The first shipped model of this shape, else the keys of the first family that reads to it; None where no family does."""
    if of_shape := shipped_models_of_shape(spec):
        return of_shape[0]
    for model_type, family in FAMILIES.items():
        keys = _keys(spec, model_type, family)
        found = read_model(keys, name=spec.name).spec
        if found is not None and _shape(found) == _shape(spec):
            return keys
    return None


def shipped_models_of_shape(spec: ModelSpec) -> list[str]:
    """The shipped models of this shape; of any vocabulary where that of `spec` is 0, which stands for one that is not known."""
    shapes = {name: _shape(_shipped(name)) for name in shipped_models()}
    wanted = _shape(spec)
    return [name for name, shape in shapes.items() if (shape if spec.vocab else replace(shape, vocab=0)) == wanted]


def _shape(spec: ModelSpec) -> ModelSpec:
    """The model without what changes no cost: its name, and the positions that rotary embedding does not tabulate."""
    kinds = () if set(spec.kinds()) == {DENSE} else spec.layer_kinds
    # where every layer is sparse, no dense MLP has this width
    ffn = spec.ffn if not all(kind.sparse for kind in spec.kinds()) else 0
    return replace(spec, name="", ffn=ffn, layer_kinds=kinds, max_positions=0 if spec.rope else spec.max_positions)


@cache
def _shipped(name: str) -> ModelSpec:
    path = shipped_model(name)
    assert path is not None
    return load_model(path)


def _keys(spec: ModelSpec, model_type: str, family: Family) -> dict[str, Any]:
    """The keys of a family that the model's fields fill; which of them mean the same model, reading them back tells."""
    values = _values(spec)
    keys = {key.name: values[name] for name, key in family.keys.items() if values.get(name) is not None}
    if family.rotary is not None and spec.rotary_dim:
        keys[family.rotary.names[0]] = spec.rotary_dim / spec.head_dim
    return {"model_type": model_type, **keys}


def _values(spec: ModelSpec) -> dict[str, Any]:
    """Values by the names of families' fields."""
    values: dict[str, Any] = {each.name: getattr(spec, each.name) for each in fields(spec)}
    values["activation"] = ACTIVATIONS[spec.gated]
    values |= {"ffn": spec.ffn or None, "max_positions": spec.max_positions or None}
    for mixer in spec.mixers:
        values |= {f"{mixer.NAME}.{name}": size or None for name, size in sizes_of(mixer).items()}
    if spec.experts is not None:
        values |= {f"{Mixture.NAME}.{name}": size for name, size in sizes_of(spec.experts).items()}
    if spec.experts is not None:
        values["experts.shared_count"] = spec.experts.shared_ffn // spec.experts.ffn
        values["pattern.dense_before"] = next((n for n, kind in enumerate(spec.kinds()) if kind.sparse), spec.layers)
    return values | {"pattern.window": spec.window, "pattern.windowed": bool(spec.window)}
