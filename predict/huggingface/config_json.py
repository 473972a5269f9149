"""Reader of a Hugging Face `config.json`: its keys to a ModelSpec, or every fault of them.

`layer_kinds` says which layers differ, `derived_fields` what follows from other keys, `families` which key sets which size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from predict.huggingface.derived_fields import decide_by_names, decide_by_numbers, derive
from predict.huggingface.families import AROUND_DECODERS, FAMILIES, TOWERS
from predict.huggingface.families.family import DENSE_LAYERS, FULL_ATTENTION, LAYER_TYPES, MODEL_KEYS, Family, Tower
from predict.huggingface.layer_kinds import read_layers
from predict.layers.mixture import Mixture
from predict.layers.part import FeedForward, Mixer
from predict.layers.registry import fields_of_parts, parts
from predict.model.spec import ModelSpec
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, did_you_mean, join, key_name, shown
from sampling.files.schema import Scalar, check

TEXT, VISION = "text_config", "vision_config"
"""The sections of a vision-language model's config that hold its text decoder and its vision tower."""
TIED = "tie_word_embeddings"
BESIDE_TEXT = (VISION, *MODEL_KEYS["beside_text"].split())
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
    if VISION in given and given["model_type"] in AROUND_DECODERS and given["model_type"] not in TOWERS:
        problem = f"the vision tower of {given['model_type']} is not known; remove it, and its text alone is predicted"
        faults.append(Fault(path=VISION, problem=problem))
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


# Features of a `config.json` that are known but not modelled, by configs/model-keys.json; they are refused, never silently ignored.

UNMODELLED: Mapping[str, str] = MODEL_KEYS["unmodelled"]
"""Architectures that are known, and what of them is missing here."""
OTHER_NAMES: Mapping[str, str] = MODEL_KEYS["other_names"]
"""Names that stand for a family's own: those that `transformers` maps (`attribute_map`), and Megatron's."""


class Refusal(NamedTuple):
    """A feature that is off when its key is missing, null, false, 0, one of `off` or a list of these.

    A refusal without a `fix` is for a feature that other families have; a family that reads the key is not refused.
    """

    key: str
    feature: str
    fix: str = ""
    off: tuple[Any, ...] = ()

    def applies(self, value: Any) -> bool:
        each_is_off = all(each in self.off for each in (value if isinstance(value, list) else [value]))
        return value not in (None, False, 0, {}) and not each_is_off


REFUSALS = (
    # keys of some families, by the names that published configs give them
    *(Refusal(key=key, feature=feature) for key, feature in MODEL_KEYS["elsewhere"].items()),
    *(
        Refusal(key=key, feature=each["feature"], fix=each["fix"], off=tuple(each.get("off", ())))
        for each in MODEL_KEYS["refusals"]
        for key in each["keys"]
    ),
)
REFUSED_KEYS = frozenset(refusal.key for refusal in REFUSALS)
NEUTRAL = frozenset(name for names in MODEL_KEYS["neutral"].values() for name in names.split())
"""Keys of published configs (of the families read here, and what every `transformers` config has) that change neither the
shape of a matrix nor the work of a training step. `layer_types` and the window's switch are judged by `refused`."""


def is_neutral(key: str) -> bool:
    """Whether a key changes no cost; one with a leading underscore is a library's own note, or somebody's comment."""
    return key in NEUTRAL or key.startswith("_")


def refused(values: Mapping[str, Any], family: Family | None) -> Iterator[Fault]:
    """A fault for each feature that is on and that the family does not have; for an unknown family, that no family has."""
    read = frozenset(family.reads()) if family else frozenset()
    effective = dict(values)
    rotary = values.get("rope_parameters")
    if isinstance(rotary, Mapping) and "partial_rotary_factor" in rotary:
        effective.setdefault("partial_rotary_factor", rotary["partial_rotary_factor"])
    if "use_sliding_window" in values and not values["use_sliding_window"]:
        effective["sliding_window"] = None
    reported: set[str] = set()
    for refusal in REFUSALS:
        value = effective.get(refusal.key)
        if refusal.key in read or not refusal.applies(value) or refusal.feature in reported:
            continue
        if family is None and not refusal.fix:
            continue
        reported.add(refusal.feature)
        yield Fault(path=refusal.key, problem=f"{shown(value)}: {_advice(refusal, values)}")
    if LAYER_TYPES not in read and family:
        yield from _mixed_layers(values.get(LAYER_TYPES))


def _advice(refusal: Refusal, values: Mapping[str, Any]) -> str:
    if refusal.fix:
        return f"{refusal.feature} is not modelled yet; {refusal.fix}"
    having = ", ".join(name for name, family in FAMILIES.items() if refusal.key in family.reads())
    own = values.get("model_type", "this model")
    return f"{refusal.feature} is not part of {own} and not modelled there; remove it, or set model_type to one of {having}"


def _mixed_layers(kinds: Any) -> Iterator[Fault]:
    others = [kind for kind in kinds if kind != FULL_ATTENTION] if isinstance(kinds, list) else []
    if others:
        having = ", ".join(name for name, family in FAMILIES.items() if family.pattern.typed)
        problem = f"{shown(others[0])}: only layers of {FULL_ATTENTION} are modelled here; remove it, or set model_type"
        yield Fault(path=LAYER_TYPES, problem=f"{problem} to one of {having}")
