"""The kind of each layer of a `config.json`: from the types and indices that it lists, or from its family's pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from predict.huggingface.families.family import DENSE_LAYERS, FULL_ATTENTION, LAYER_TYPES, MIXERS, Family
from predict.model.spec import DENSE, LayerKind
from sampling.files.faults import Fault, did_you_mean, shown

Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReading:
    """The kind of each layer, () where all are dense full attention, and the window of those that slide."""

    kinds: tuple[LayerKind, ...]
    window: int
    faults: list[Fault]


def read_layers(family: Family, fields: Fields, given: Mapping[Any, Any]) -> LayerReading:
    """The kinds of layers from sound `fields`, which include the number of layers, and the lists that are `given`."""
    layers, window = int(fields["layers"]), _window(fields)
    named, faults = _named_mixers(family, layers, given, window)
    dense, more = _dense_layers(family, layers, given)
    if faults or more:
        return LayerReading(kinds=(), window=0, faults=[*faults, *more])
    mixers = named or _mixers_of_pattern(family, fields, layers, window)
    kinds = tuple(
        LayerKind(mixer=mixer, sparse=family.pattern.sparse(index, fields) and index not in dense)
        for index, mixer in enumerate(mixers)
    )
    slides = any(kind.mixer == "sliding" for kind in kinds)
    return LayerReading(kinds=() if set(kinds) == {DENSE} else kinds, window=window * slides, faults=[])


def _window(fields: Fields) -> int:
    """Keys a query sees in the layers that slide; 0 where none may."""
    return int(fields.get("pattern.window", 0)) if fields.get("pattern.windowed", True) else 0


def _mixers_of_pattern(family: Family, fields: Fields, layers: int, window: int) -> list[str]:
    pattern = family.pattern
    if pattern.mixer == "sliding" and not window:
        return ["full"] * layers
    return ["full" if pattern.full(index, fields) else pattern.mixer for index in range(layers)]


def _named_mixers(family: Family, layers: int, given: Mapping[Any, Any], window: int) -> tuple[list[str], list[Fault]]:
    """The mixer of each layer where their types are named, else none."""
    types = given.get(LAYER_TYPES)
    if types is None:
        return [], []
    allowed = _mixers_by_type(family)
    if fault := _fault_of_types(family, layers, types, allowed):
        return [], [fault]
    if not family.pattern.typed:
        return [], []  # other types are refused with the features that the family lacks
    mixers = [allowed[name] for name in types]
    if "sliding" in mixers and not window:
        switch = " and use_sliding_window to true" if "pattern.windowed" in family.keys else ""
        problem = f"names sliding_attention, but no window is set; set sliding_window{switch}, or name {FULL_ATTENTION}"
        return [], [Fault(path=LAYER_TYPES, problem=problem)]
    return mixers, []


def _mixers_by_type(family: Family) -> Mapping[str, str]:
    own = family.pattern.mixer
    allowed = {name: mixer for name, mixer in MIXERS.items() if mixer in ("full", own)}
    if own not in MIXERS.values():
        # transformers calls every mixer with a recurrence so
        allowed["linear_attention"] = own
    return allowed


def _fault_of_types(family: Family, layers: int, types: Any, allowed: Mapping[str, str]) -> Fault | None:
    either = f"one of {', '.join(allowed)}" if len(allowed) > 1 else FULL_ATTENTION
    if not isinstance(types, list):
        return Fault(path=LAYER_TYPES, problem=f"{shown(types)} is not a list; give {either} for each layer, or null")
    for index, name in enumerate(types if family.pattern.typed else ()):
        if not (isinstance(name, str) and name in allowed):
            problem = f"{shown(name)} is not modelled here; give {either}{did_you_mean(name, allowed)}"
            return Fault(path=f"{LAYER_TYPES}[{index}]", problem=problem)
    if len(types) != layers:
        problem = f"{len(types)} types for the {layers} layers ({family.keys['layers'].name})"
        fix = "give one for each, or null for the architecture's own pattern"
        return Fault(path=LAYER_TYPES, problem=f"{problem}; {fix}")
    return None


def _dense_layers(family: Family, layers: int, given: Mapping[Any, Any]) -> tuple[frozenset[int], list[Fault]]:
    """Indices of layers that the config calls dense."""
    indices = given.get(DENSE_LAYERS)
    if indices is None or not family.pattern.dense_named:
        return frozenset(), []
    wanted = f"give indices of layers, each from 0 to {layers - 1}"
    if not isinstance(indices, list):
        return frozenset(), [Fault(path=DENSE_LAYERS, problem=f"{shown(indices)} is not a list; {wanted}")]
    wrong = [index for index in indices if type(index) is not int or not 0 <= index < layers]
    if wrong:
        return frozenset(), [Fault(path=DENSE_LAYERS, problem=f"{shown(wrong[0])} is not a layer; {wanted}")]
    return frozenset(indices), []
