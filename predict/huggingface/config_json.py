"""Reader of a Hugging Face `config.json`: its keys to a ModelSpec, or every fault of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from predict.huggingface.families import AROUND_DECODERS, FAMILIES, TOWERS
from predict.huggingface.families.family import (
    BLOCK_TYPES,
    DENSE_LAYERS,
    FEED_FORWARD_TYPES,
    FEED_FORWARDS,
    FULL_ATTENTION,
    LAYER_TYPES,
    MIXERS,
    Family,
    Number,
    Tower,
)
from predict.huggingface.refusals import OTHER_NAMES, REFUSED_KEYS, UNMODELLED, is_neutral, refused
from predict.layers.mixture import Mixture
from predict.layers.part import FeedForward, Mixer
from predict.layers.registry import fields_of_parts, mixers, parts
from predict.model.spec import DENSE, WINDOWED, LayerKind, ModelSpec
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, did_you_mean, divisors, join, key_name, near_multiples, shown
from sampling.files.schema import Scalar, check

# The kind of each layer of a `config.json`: from the types and indices that it lists, or from its family's pattern.

Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReading:
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
    blocks, path = family.pattern.blocks, _blocks_key(given)
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


def _blocks_key(given: Mapping[Any, Any]) -> str:
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


# Fields of a model that follow from others of its `config.json`, and the faults of values that do not fit together.

STRETCHING = ("linear", "dynamic", "yarn")
"""Scalings of rotary embeddings that add positions to those that `config.json` states."""

MOST_STRETCHED = 1e6


def derive(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that follow from others, with a fault where they cannot."""
    heads, hidden = fields.get("heads"), fields.get("hidden")
    stated = fields.get("max_positions")
    fields["max_positions"] = stretched_positions(stated if isinstance(stated, int) else 0, family, given)
    if isinstance(hidden, int) and "ffn" not in fields and _left_out("ffn", family, given):
        fields["ffn"] = 4 * hidden
    if isinstance(heads, int) and "kv_heads" not in fields and _left_out("kv_heads", family, given):
        fields["kv_heads"] = heads
    yield from _uneven_groups(fields, family)
    names = {field: key.name for field, key in family.keys.items()}
    own = own_mixers(family)
    for mixer in own:
        if mixer.IS_ATTENTION:
            yield from mixer.derived(fields, names)
    if not _own_heads(family) and isinstance(heads, int) and isinstance(hidden, int) and "head_dim" not in fields:
        yield from _even_head_dim(fields, family, given, hidden, heads)
    if family.has("experts"):
        yield from _experts_out_of_reach(fields, family)
    for mixer in own:
        if not mixer.IS_ATTENTION:
            yield from mixer.derived(fields, names)
    yield from _odd_heads(fields, family, given)


def own_mixers(family: Family) -> list[type[Mixer]]:
    """The mixers whose sizes the family states."""
    return [of for of in mixers() if family.has(of.NAME)]


def _own_heads(family: Family) -> bool:
    """Whether its attention is a mixer of its own, whose heads have other widths than plain attention's."""
    return any(of.IS_ATTENTION for of in own_mixers(family))


def stretched_positions(positions: int, family: Family, given: Mapping[Any, Any]) -> int:
    """Positions that the scaling of rotary embeddings makes of those of a `config.json`, as vLLM derives max_model_len from them: times the
    factor, yarn's from the original positions; llama3 and longrope state them already."""
    scaling = given.get("rope_scaling") or given.get("rope_parameters")
    if not isinstance(scaling, Mapping) or family.positions_are_stretched:
        return positions
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in STRETCHING or not isinstance(factor, int | float) or not 1 <= factor <= MOST_STRETCHED:
        return positions
    return int(factor * (original if kind == "yarn" and isinstance(original, int) else positions))


def _left_out(field: str, family: Family, given: Mapping[Any, Any]) -> bool:
    """Whether a field rightly has no value of its own, so that it follows from others."""
    key = family.keys.get(field)
    if key is None:
        return True
    return (key.nullable and given[key.name] is None) if key.name in given else not key.required


def _even_head_dim(
    fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any], hidden: int, heads: int
) -> Iterator[Fault]:
    if not _left_out("head_dim", family, given):
        return
    if hidden % heads:
        key = family.keys
        problem = f"{hidden} is not a multiple of the {heads} heads ({key['heads'].name}) and no head_dim is given"
        yield Fault(path=key["hidden"].name, problem=f"{problem}; set {near_multiples(hidden, heads)}")
    else:
        fields["head_dim"] = hidden // heads


def _experts_out_of_reach(fields: dict[str, Scalar], family: Family) -> Iterator[Fault]:
    count, topk = fields.get("experts.count"), fields.get("experts.topk")
    if isinstance(count, int) and isinstance(topk, int) and 0 < count < topk:
        keys = family.keys
        problem = f"{topk} experts a token, of {count} ({keys['experts.count'].name}); set {count} or less"
        yield Fault(path=keys["experts.topk"].name, problem=problem)
    groups, chosen = fields.get("experts.groups"), fields.get("experts.topk_groups")
    if not (isinstance(count, int) and isinstance(topk, int) and isinstance(groups, int) and isinstance(chosen, int)):
        return
    at, of = family.keys["experts.groups"].name, family.keys["experts.topk_groups"].name
    if count % groups:
        yield Fault(path=at, problem=f"{groups} groups do not divide the {count} experts; set one of {divisors(count)}")
    elif chosen > groups or chosen * (count // groups) < topk <= count:
        least = -(-topk // (count // groups))
        problem = f"{topk} experts cannot come from {chosen} of the {groups} groups of {count // groups}"
        yield Fault(path=of, problem=f"{problem}; set {least} to {groups}")


def decide_by_numbers(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that numbers decide, with a fault for each value that is not a valid number."""
    for name, cap in family.caps.items():
        path, value = _number(cap, given)
        fields[name] = value is not None
        if value is not None and not (_is_number(value) and value > 0):
            yield Fault(path=path, problem=f"{shown(value)} is not a bound; give a number above 0, or null for none")
    if family.rotary is not None:
        yield from _partial_rotary(fields, *_number(family.rotary, given))


def _number(number: Number, given: Mapping[Any, Any]) -> tuple[str, Any]:
    """A number's value, and the key path it has or would have."""
    for name in number.names:
        if name in given:
            return name, given[name]
    rotary = given.get("rope_parameters")
    for name in number.names:
        if isinstance(rotary, Mapping) and name in rotary:
            return join("rope_parameters", name), rotary[name]
    return number.names[0], number.default


def decide_by_names(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that named values decide, and the number of layers where only their list says it."""
    for key, values in family.choices.items():
        value = given.get(key)
        if value in (list(values)):
            fields |= values[value]
        else:
            names = [name for name in values if isinstance(name, str)]
            advice = f"set one of {', '.join(names)}{did_you_mean(value, names)}" if names else "omit it"
            problem = f"{shown(value)} is not modelled here; {advice}"
            yield Fault(path=key, problem=problem)
    if not family.pattern.blocks or "layers" in fields:
        return
    key = _blocks_key(given)
    blocks = given.get(key)
    if isinstance(blocks, list | str) and blocks:
        fields["layers"] = len(blocks)
    else:
        yield Fault(path=key, problem=f"{shown(blocks)} is not a list of names; give the part that each layer is")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _partial_rotary(fields: dict[str, Scalar], path: str, share: Any) -> Iterator[Fault]:
    head_dim = fields.get("head_dim")
    if not (_is_number(share) and 0 < share <= 1):
        problem = f"{shown(share)} is not a share of a head's width; give a number above 0 and at most 1"
        yield Fault(path=path, problem=problem)
    elif isinstance(head_dim, int) and share < 1:
        fields["rotary_dim"] = rotated = int(head_dim * share)
        if rotated % 2 or not rotated:
            problem = f"{shown(share)} rotates {rotated} of a head's {head_dim}, and rotary embedding turns pairs"
            yield Fault(path=path, problem=f"{problem}; make that an even number above 0")


def _odd_heads(fields: Mapping[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    head_dim = fields.get("head_dim")
    whole = fields["rope"] and family.rotary is None and not _own_heads(family)
    if whole and isinstance(head_dim, int) and head_dim % 2:
        own = family.keys.get("head_dim")
        at = own.name if own and given.get(own.name) is not None else family.keys["hidden"].name
        problem = f"makes heads {head_dim} wide, and rotary embedding turns pairs; make the head width even"
        yield Fault(path=at, problem=f"{shown(given.get(at))} {problem}")


def _uneven_groups(fields: Mapping[str, Scalar], family: Family) -> Iterator[Fault]:
    heads, kv_heads = fields.get("heads"), fields.get("kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads and not _own_heads(family):
        problem = f"{kv_heads} does not divide the {heads} query heads; set one of {divisors(heads)}"
        yield Fault(path=family.keys["kv_heads"].name, problem=problem)


TEXT, VISION = "text_config", "vision_config"
"""The sections of a vision-language model's config that hold its text decoder and its vision tower."""
TIED = "tie_word_embeddings"
BESIDE_TEXT = (
    VISION,
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "vision_token_id",
    "mm_tokens_per_image",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
)
"""Keys of the vision tower and of the tokens that stand for pictures, which training the text decoder does not involve."""
SIDES = ("image_size", "patch_size")
"""Keys of a vision tower that give the side of a square, or height and width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReading:
    """The outcome of reading a model's keys: the sound fields, the faults, and the spec if there are none."""

    values: Mapping[str, Scalar]
    faults: list[Fault]
    spec: ModelSpec | None
    keys: Mapping[str, Any] = field(default_factory=dict)
    """The keys that were read, as given."""


def load_model(source: Path | str | Mapping[str, Any]) -> ModelSpec:
    """Read a `config.json` or its keys; ConfigError lists every fault."""
    faults: list[Fault] = []
    if isinstance(source, Mapping):
        label, name, values = "model", str(with_model_type(source).get("model_type")), dict(source)
    else:
        label, name = str(source), Path(source).stem
        read, faults = read_json(Path(source))
        if read is None:
            raise config_error(faults, {"": label})
        values = read
    reading = read_model(values, name=name)
    faults = [*faults, *reading.faults]
    if faults or reading.spec is None:
        raise config_error(faults, {"": label})
    return reading.spec


def read_model(given: Mapping[Any, Any], *, name: str) -> ModelReading:
    """Read the keys of a `config.json`. Key paths in the faults start at its top level."""
    given = with_model_type(given)
    family = family_of(given)
    if family is None:
        return ModelReading(values={}, faults=[_unknown_family(given), *refused(_named(given), None)], spec=None)
    tower = TOWERS.get(given["model_type"])
    if TEXT not in given:
        beside = _beside_text(given) if tower else ()
        reading = _read_decoder({key: given[key] for key in given if key not in beside}, family, name=name)
        return _with_tower(reading, tower, given)
    faults, decoder = _text_decoder(given, family)
    if decoder is None:
        return ModelReading(values={}, faults=faults, spec=None)
    reading = _read_decoder(decoder, family, name=name)
    faults += [fault.under(TEXT) for fault in reading.faults]
    reading = ModelReading(values=reading.values, faults=faults, spec=None if faults else reading.spec)
    return _with_tower(reading, tower, given)


def _beside_text(given: Mapping[Any, Any]) -> tuple[str, ...]:
    """Keys of a vision-language model that are none of its text decoder's."""
    tower = TOWERS.get(given.get("model_type", ""))
    return (*BESIDE_TEXT, *(tower.around() if tower else ()))


def _with_tower(reading: ModelReading, tower: Tower | None, given: Mapping[Any, Any]) -> ModelReading:
    """The reading of a decoder with its vision tower or encoder, if it has one, or with the faults of that."""
    if tower is None or (tower.section and tower.section not in given):
        if reading.spec is None or not any(mixer.lacks_tokens for mixer in reading.spec.mixers):
            return reading
        missing = Fault(path=VISION, problem=f"missing, and layers of {given['model_type']} attend to images; add it")
        return replace(reading, faults=[*reading.faults, missing], spec=None)
    keys = given[tower.section] if tower.section else given
    if not isinstance(keys, Mapping):
        wrong = [
            Fault(path=VISION, problem=f"{shown(keys)} is not a mapping; give the vision tower's keys, or remove it")
        ]
        return replace(reading, faults=[*reading.faults, *wrong], spec=None)
    around = {key.name: given[key.name] for key in tower.beside if key.name in given}
    beside, faults = check(around, list(tower.beside))
    own = _read_decoder(_square(keys), tower.family, name="vision tower" if tower.section else "encoder")
    faults += [fault.under(tower.section) for fault in own.faults]
    faults = [fault for fault in faults if fault not in reading.faults]  # of keys that encoder and decoder share
    if faults or own.spec is None or reading.spec is None:
        return replace(reading, faults=[*reading.faults, *faults], spec=None)
    patches = tower.patches({**own.values, **beside}, reading.spec.hidden)
    spec = replace(reading.spec, tower=replace(own.spec, patches=patches))
    return replace(reading, spec=spec.attending_to(patches.tokens) if patches.attended else spec)


def _square(keys: Mapping[Any, Any]) -> dict[Any, Any]:
    """The keys of a tower with one number for the sides of square images and patches."""
    sides = {key: keys[key] for key in SIDES if isinstance(keys.get(key), list)}
    return dict(keys) | {key: value[0] for key, value in sides.items() if value and len(set(map(str, value))) == 1}


def with_model_type(given: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The keys with a `model_type`, which configs of diffusers call `_class_name`."""
    called = given.get("_class_name")
    return {"model_type": called, **given} if called else given


def family_of(given: Mapping[Any, Any]) -> Family | None:
    """The family that `model_type` names, or its decoder's does, if it is modelled."""
    model_type = with_model_type(given).get("model_type")
    if isinstance(model_type, str) and model_type in AROUND_DECODERS:
        text = given.get(TEXT)
        inside = text.get("model_type") if isinstance(text, Mapping) else None
        model_type = AROUND_DECODERS[model_type] if inside is None else inside
    return FAMILIES.get(model_type) if isinstance(model_type, str) else None


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if isinstance(key, str)}


def _unknown_family(given: Mapping[Any, Any]) -> Fault:
    known = ", ".join([*FAMILIES, *AROUND_DECODERS])
    if "model_type" not in given:
        return Fault(path="model_type", problem=f"missing; add model_type: one of {known}")
    value = given["model_type"]
    missing = UNMODELLED.get(value) if isinstance(value, str) else None
    lacking = f" ({missing} would be needed)" if missing else ""
    problem = f"{shown(value)} is not modelled yet{lacking}; set one of {known}{did_you_mean(value, FAMILIES)}"
    return Fault(path="model_type", problem=problem)


def _text_decoder(given: Mapping[Any, Any], family: Family) -> tuple[list[Fault], dict[Any, Any] | None]:
    """The keys of the text decoder inside a vision-language model's, and the faults of those around it."""
    text = given[TEXT]
    if not family.nested and given["model_type"] not in AROUND_DECODERS:
        having = ", ".join([*(name for name, other in FAMILIES.items() if other.nested), *AROUND_DECODERS])
        problem = f"only configs of {having} are read with keys inside it; put its keys at the top level"
        return [Fault(path=TEXT, problem=problem)], None
    if not isinstance(text, Mapping):
        return [Fault(path=TEXT, problem=f"{shown(text)} is not a mapping; give the text decoder's keys")], None
    faults = list(refused(_named(given), family))
    if family_of({"model_type": given["model_type"]} | dict(text)) is not family:
        problem = f"{shown(text['model_type'])} is not the decoder of {given['model_type']}; remove it"
        faults.append(Fault(path=join(TEXT, "model_type"), problem=problem))
    for key in given:
        if (
            key not in (TEXT, TIED)
            and key not in _beside_text(given)
            and not (isinstance(key, str) and _costs_nothing(key))
        ):
            advice = f"; put it into {TEXT}" if own_name(key, family) in family.reads() else ""
            faults.append(Fault(path=key_name(key), problem=f"unknown key next to {TEXT}, remove it{advice}"))
    decoder = {"model_type": given["model_type"]} | dict(text)
    if TIED in given and decoder.setdefault(TIED, given[TIED]) != given[TIED]:
        problem = f"{shown(given[TIED])}, but {TEXT} says {shown(decoder[TIED])}; keep one of the two"
        faults.append(Fault(path=TIED, problem=problem))
    return faults, decoder


def _read_decoder(given: Mapping[Any, Any], family: Family, *, name: str) -> ModelReading:
    values, faults = own_names(given, family)
    faults += refused(_named(values), family)
    shape = {key: value for key, value in values.items() if not _is_not_a_size(key, family)}
    sound, more = check(shape, list(family.keys.values()), also_known=(*OTHER_NAMES, *family.reads()))
    fields = _fields(sound, family, values)
    more += decide_by_names(fields, family, values)
    if family.adjust is not None:
        family.adjust(fields)
    layers = read_layers(family, fields, values) if _tell_layers_apart(fields, family) else None
    faults += [*more, *derive(fields, family, values), *decide_by_numbers(fields, family, values)]
    faults += layers.faults if layers else []
    if faults or layers is None:
        return ModelReading(values=fields, faults=faults, spec=None)
    parts = _parts(fields, family) | {"layer_kinds": layers.kinds, "window": layers.window}
    if family.pattern.blocks and not any(kind.sparse for kind in layers.kinds):
        parts["experts"] = None
    shapes: dict[str, Any] = {field: value for field, value in fields.items() if _is_of_model(field)}
    patches = family.patches(fields) if family.patches else None
    return ModelReading(values=fields, faults=[], spec=ModelSpec(name=name, patches=patches, **shapes, **parts))


def _fields(sound: Mapping[str, Scalar], family: Family, given: Mapping[Any, Any]) -> dict[str, Scalar]:
    """The fields that keys and architecture set. A key that is null sets nothing, even if omitting it means a default."""
    keys = {field: key.name for field, key in family.keys.items() if key.name in sound}
    return {field: sound[key] for field, key in keys.items() if given.get(key, sound[key]) is not None} | dict(
        family.fixed
    )


def _tell_layers_apart(fields: Mapping[str, Scalar], family: Family) -> bool:
    """Whether everything is sound that says how many layers there are and which of them differ."""
    needs = [field for field, key in family.keys.items() if field.startswith("pattern.") and not key.nullable]
    return all(field in fields for field in ("layers", *needs))


def _is_of_model(field: str) -> bool:
    """Whether a family's field is one of ModelSpec, not of a part or of how layers are laid out."""
    return "." not in field and field != "activation"


def _is_not_a_size(key: Any, family: Family) -> bool:
    """Whether a key is not a size of the model: it is judged as a feature or with the layers, or changes no cost."""
    return isinstance(key, str) and key not in family.names() and (key in family.reads() or _costs_nothing(key))


def _costs_nothing(key: str) -> bool:
    return key in REFUSED_KEYS or key in (LAYER_TYPES, DENSE_LAYERS) or is_neutral(key)


def own_name(key: Any, family: Family) -> Any:
    """The family's own name of a key that `transformers` or Megatron calls otherwise."""
    if not isinstance(key, str) or key in family.reads():
        return key
    field = OTHER_NAMES.get(key.replace("-", "_"), "")
    return family.keys[field].name if field in family.keys else key


def own_names(given: Mapping[Any, Any], family: Family) -> tuple[dict[Any, Any], list[Fault]]:
    """The keys under the family's own names, and a fault for each that is given twice with different values."""
    values, faults = {key: value for key, value in given.items() if own_name(key, family) == key}, []
    for key, value in given.items():
        own = own_name(key, family)
        if own == key or values.setdefault(own, value) == value:
            continue
        problem = f"{shown(value)}, but {own} (the same thing) is {shown(values[own])}; keep one of the two"
        faults.append(Fault(path=key_name(key), problem=problem))
    return values, faults


def own_key(given: Mapping[Any, Any], key: Any) -> str:
    """The name that a key has in this `config.json`'s family, with the section that holds it."""
    family = family_of(given)
    if family is None:
        return str(key)
    plain = str(key).removeprefix(f"{TEXT}.")
    inside = isinstance(given.get(TEXT), Mapping) and plain not in BESIDE_TEXT and plain not in (TEXT, "model_type")
    return join(TEXT if inside else "", str(own_name(plain, family)))


def override(given: Mapping[Any, Any], key: str, value: Any) -> dict[Any, Any]:
    """The keys of a `config.json` with one set anew, whatever name it has there."""
    own = own_key(given, key)
    others = {other: old for other, old in given.items() if own_key(given, other) != own}
    if not own.startswith(f"{TEXT}."):
        return others | {own: value}
    text = given[TEXT]
    kept = {other: old for other, old in text.items() if own_key(given, other) != own}
    return others | {TEXT: kept | {own.removeprefix(f"{TEXT}."): value}}


BESIDE_PARTS = ("pattern", "patches")
"""Prefixes of fields that are none of a layer's part."""


def _parts(fields: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The parts of the layers: those whose sizes the family's fields state, by the prefix of these, and plain ones otherwise."""
    prefixes = dict.fromkeys(name.partition(".")[0] for name in fields if "." in name)
    if not fields.get("experts.count"):
        prefixes.pop("experts", None)
    return fields_of_parts([_part(name, _of(name, fields), fields) for name in prefixes if name not in BESIDE_PARTS])


def _part(name: str, given: dict[str, Any], fields: Mapping[str, Any]) -> Mixer | FeedForward:
    of = parts()[name]
    return _mixture(given, fields) if of is Mixture else of(**given)


def _of(part: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(f"{part}."): value for name, value in fields.items() if name.startswith(f"{part}.")}


def _mixture(given: dict[str, Any], fields: Mapping[str, Any]) -> Mixture:
    """The mixture; its experts are as wide as the MLP where their own width has no key."""
    width = given.setdefault("ffn", fields["ffn"])
    shared = given.pop("shared_count", 0)
    return Mixture(**{"shared_ffn": shared * width, "gated": fields["gated"]} | given)
