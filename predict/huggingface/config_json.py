"""Reader of a Hugging Face `config.json`: its keys to a ModelSpec, or every fault of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from predict.huggingface.derived_fields import decide_by_numbers, derive
from predict.huggingface.families import FAMILIES
from predict.huggingface.families.family import DENSE_LAYERS, LAYER_TYPES, Family
from predict.huggingface.families.unmodelled import OTHER_NAMES, UNMODELLED
from predict.huggingface.layer_types import read_layers
from predict.huggingface.refusals import REFUSED_KEYS, is_neutral, refused
from predict.layers.mixture import Mixture
from predict.layers.part import FeedForward, Mixer
from predict.layers.registry import fields_of_parts, parts
from predict.model.spec import ModelSpec
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, did_you_mean, join, key_name, shown
from sampling.files.keys import Scalar
from sampling.files.schema import check

TEXT = "text_config"
"""The section of a vision-language model's config that holds its text decoder."""
TIED = "tie_word_embeddings"
BESIDE_TEXT = (
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "mm_tokens_per_image",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
)
"""Keys of the vision tower and of the tokens that stand for pictures, which training the text decoder does not involve."""


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
        label, name, values = "model", str(source.get("model_type")), dict(source)
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
    family = family_of(given)
    if family is None:
        return ModelReading(values={}, faults=[_unknown_family(given), *refused(_named(given), None)], spec=None)
    if TEXT not in given:
        return _read_decoder(given, family, name=name)
    faults, decoder = _text_decoder(given, family)
    if decoder is None:
        return ModelReading(values={}, faults=faults, spec=None)
    reading = _read_decoder(decoder, family, name=name)
    faults += [fault.under(TEXT) for fault in reading.faults]
    return ModelReading(values=reading.values, faults=faults, spec=None if faults else reading.spec)


def family_of(given: Mapping[Any, Any]) -> Family | None:
    """The family that `model_type` names, if it is modelled."""
    model_type = given.get("model_type")
    return FAMILIES.get(model_type) if isinstance(model_type, str) else None


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if isinstance(key, str)}


def _unknown_family(given: Mapping[Any, Any]) -> Fault:
    known = ", ".join(FAMILIES)
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
    if not family.nested:
        having = ", ".join(name for name, other in FAMILIES.items() if other.nested)
        problem = f"only configs of {having} are read with keys inside it; put its keys at the top level"
        return [Fault(path=TEXT, problem=problem)], None
    if not isinstance(text, Mapping):
        return [Fault(path=TEXT, problem=f"{shown(text)} is not a mapping; give the text decoder's keys")], None
    faults = list(refused(_named(given), family))
    if family_of({"model_type": given["model_type"]} | dict(text)) is not family:
        problem = f"{shown(text['model_type'])} is not the decoder of {given['model_type']}; remove it"
        faults.append(Fault(path=join(TEXT, "model_type"), problem=problem))
    for key in given:
        if key not in (TEXT, TIED) and key not in BESIDE_TEXT and not (isinstance(key, str) and _costs_nothing(key)):
            advice = f"; put it into {TEXT}" if own_name(key, family) in family.reads() else ""
            faults.append(Fault(path=key_name(key), problem=f"unknown key beside {TEXT}, remove it{advice}"))
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
    layers = read_layers(family, fields, values) if _tell_layers_apart(fields, family) else None
    faults += [*more, *derive(fields, family, values), *decide_by_numbers(fields, family, values)]
    faults += layers.faults if layers else []
    if faults or layers is None:
        return ModelReading(values=fields, faults=faults, spec=None)
    parts = _parts(fields, family) | {"layer_kinds": layers.kinds, "window": layers.window}
    shapes: dict[str, Any] = {field: value for field, value in fields.items() if _is_of_model(field)}
    return ModelReading(values=fields, faults=[], spec=ModelSpec(name=name, **shapes, **parts))


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


def _parts(fields: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The parts of the layers: those whose sizes the family's fields state, by the prefix of these, and plain ones otherwise."""
    prefixes = dict.fromkeys(name.partition(".")[0] for name in fields if "." in name)
    return fields_of_parts([_part(name, _of(name, fields), fields) for name in prefixes if name != "pattern"])


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
