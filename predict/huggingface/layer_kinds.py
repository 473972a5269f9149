"""The kind of each layer of a `config.json`: from the types and indices that it lists, or from its family's pattern."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from predict.huggingface.families.family import (
    BLOCK_TYPES,
    DENSE_LAYERS,
    FEED_FORWARD_TYPES,
    FEED_FORWARDS,
    FULL_ATTENTION,
    LAYER_TYPES,
    MIXERS,
    Family,
)
from predict.model.spec import DENSE, WINDOWED, LayerKind
from sampling.files.faults import Fault, did_you_mean, shown

Fields = Mapping[str, Any]


class LayerReading(NamedTuple):
    """The kind of each layer, () where all are dense full attention, and the window of those that slide."""

    kinds: tuple[LayerKind, ...]
    window: int
    faults: list[Fault]


def read_layers(family: Family, fields: Fields, given: Mapping[Any, Any]) -> LayerReading:
    """The kinds of layers from sound `fields`, which include the number of layers, and the lists that are `given`."""
    if family.pattern.blocks:
        return _read_blocks(family, fields, given)
    layers, window = int(fields["layers"]), _window(fields)
    named, faults = _named_mixers(family, layers, given, window)
    dense, more = _indices(DENSE_LAYERS if family.pattern.dense_named else "", layers, given)
    full, unread = _indices(family.pattern.full_named, layers, given)
    listed, unlisted = _listed_mixers(family, layers, given)
    typed, wrong = _named_feed_forwards(family, layers, given)
    more += [*unread, *unlisted]
    if faults or more or wrong:
        return LayerReading(kinds=(), window=0, faults=[*faults, *more, *wrong])
    mixers = named or listed or _mixers_of_pattern(family, fields, layers, window)
    mixers = ["full" if index in full else mixer for index, mixer in enumerate(mixers)]
    sparse = typed or [family.pattern.sparse(index, fields) and index not in dense for index in range(layers)]
    pattern = family.pattern
    kinds = tuple(
        LayerKind(
            mixer=mixer,
            sparse=is_sparse,
            has_feed_forward=not pattern.alone(index, fields),
            gated=pattern.gates_mixer if mixer == pattern.mixer != "full" else pattern.gated(index, fields),
        )
        for index, (mixer, is_sparse) in enumerate(zip(mixers, sparse, strict=True))
    )
    slides = any(kind.mixer in WINDOWED for kind in kinds)
    return LayerReading(kinds=() if set(kinds) == {DENSE} else kinds, window=window * slides, faults=[])


def _listed_mixers(family: Family, layers: int, given: Mapping[Any, Any]) -> tuple[list[str], list[Fault]]:
    """The mixer of each layer where those of the family's own mixer are listed, else none."""
    key = family.pattern.mixer_named
    if given.get(key) is None:
        return [], []
    own, faults = _indices(key, layers, given)
    return [family.pattern.mixer if index in own else "full" for index in range(layers)], faults


def _read_blocks(family: Family, fields: Fields, given: Mapping[Any, Any]) -> LayerReading:
    """The kinds of layers that are one part each."""
    layers = int(fields["layers"])
    blocks, path = family.pattern.blocks, blocks_key(given)
    named = given.get(path)
    either = f"give one of {', '.join(blocks)} for each layer"
    faults = []
    if not isinstance(named, list | str):
        faults = [Fault(path=path, problem=f"{shown(named)} is not a list of names; {either}")]
    elif wrong := [name for name in named if not (isinstance(name, str) and name in blocks)]:
        faults = [Fault(path=path, problem=f"{shown(wrong[0])} is not modelled here; {either}")]
    elif len(named) != layers:
        problem = f"{len(named)} blocks for the {layers} layers ({family.keys['layers'].name}); {either}"
        faults = [Fault(path=path, problem=problem)]
    kinds = () if faults else tuple(blocks[name] for name in named or ())
    if any(kind.sparse for kind in kinds) and not fields.get("experts.count"):
        own = family.keys["experts.count"].name
        faults = [Fault(path=own, problem=f"no experts, although {path} has mixtures of them; give their number")]
    return LayerReading(kinds=kinds, window=0, faults=faults)


def blocks_key(given: Mapping[Any, Any]) -> str:
    """The key that names the blocks of a config."""
    return next((key for key in BLOCK_TYPES if given.get(key) is not None), BLOCK_TYPES[0])


def _window(fields: Fields) -> int:
    """Keys a query sees in the layers that slide; 0 where none may."""
    return int(fields.get("pattern.window", 0)) if fields.get("pattern.windowed", True) else 0


def _mixers_of_pattern(family: Family, fields: Fields, layers: int, window: int) -> list[str]:
    pattern = family.pattern
    if pattern.mixer in WINDOWED and not window:
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
    if family.pattern.full_called:
        return {family.pattern.full_called: "full"}
    if own not in MIXERS.values():
        # transformers calls every mixer with a recurrence so, and had plain names before
        allowed |= {"linear_attention": own, own: own, "attention": "full"}
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


def _named_feed_forwards(family: Family, layers: int, given: Mapping[Any, Any]) -> tuple[list[bool], list[Fault]]:
    """Whether each layer is sparse where the types of feed-forwards are named, else none."""
    types = given.get(FEED_FORWARD_TYPES)
    if types is None or not family.pattern.sparse_typed:
        return [], []
    either = f"give one of {', '.join(FEED_FORWARDS)} for each of the {layers} layers, or null"
    if not isinstance(types, list) or len(types) != layers:
        return [], [Fault(path=FEED_FORWARD_TYPES, problem=f"{shown(types)} is not a list of {layers}; {either}")]
    wrong = [name for name in types if not (isinstance(name, str) and name in FEED_FORWARDS)]
    if wrong:
        return [], [Fault(path=FEED_FORWARD_TYPES, problem=f"{shown(wrong[0])} is not modelled here; {either}")]
    return [FEED_FORWARDS[name] for name in types], []


def _indices(key: str, layers: int, given: Mapping[Any, Any]) -> tuple[frozenset[int], list[Fault]]:
    """Indices of the layers that a key lists; none where there is no such key."""
    indices = given.get(key)
    if indices is None:
        return frozenset(), []
    wanted = f"give indices of layers, each from 0 to {layers - 1}"
    if not isinstance(indices, list):
        return frozenset(), [Fault(path=key, problem=f"{shown(indices)} is not a list; {wanted}")]
    wrong = [index for index in indices if type(index) is not int or not 0 <= index < layers]
    if wrong:
        return frozenset(), [Fault(path=key, problem=f"{shown(wrong[0])} is not a layer; {wanted}")]
    return frozenset(indices), []
