"""From the keys of a Hugging Face `config.json` to a ModelSpec, gathering every fault on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict.documents import read_json
from predict.faults import Fault, config_error, did_you_mean, divisors, key_name, near_multiples, shown
from predict.keys import Scalar, check
from predict.workload.families import FAMILIES, OTHER_NAMES, Family
from predict.workload.model import ModelSpec
from predict.workload.refusals import REFUSALS, is_neutral, refused


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReading:
    """What could be made of a model's keys: the fields that are sound, the faults, and the spec if there are none."""

    values: Mapping[str, Scalar]
    faults: list[Fault]
    spec: ModelSpec | None


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
        features = refused(_named(given), {})
        return ModelReading(values={}, faults=[_unknown_family(given), *features], spec=None)
    values, faults = own_names(given, family)
    faults += refused(_named(values), family.assumed)
    shape = {key: value for key, value in values.items() if not _costs_nothing(key)}
    sound, more = check(shape, list(family.keys.values()), also_known=OTHER_NAMES)
    fields = {field: sound[key.name] for field, key in family.keys.items() if key.name in sound} | dict(family.fixed)
    faults += [*more, *_derive(fields, family, values)]
    if faults:
        return ModelReading(values=fields, faults=faults, spec=None)
    shapes = {field: value for field, value in fields.items() if field != "activation"}
    return ModelReading(values=fields, faults=[], spec=ModelSpec(name=name, **shapes))  # type: ignore[arg-type]


def family_of(given: Mapping[Any, Any]) -> Family | None:
    """The family that `model_type` names, if it is modelled."""
    model_type = given.get("model_type")
    return FAMILIES.get(model_type) if isinstance(model_type, str) else None


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if isinstance(key, str)}


_REFUSED_KEYS = frozenset(refusal.key for refusal in REFUSALS)


def _costs_nothing(key: Any) -> bool:
    """Whether a key is no part of the shape: it is judged as a feature, or changes no cost."""
    return isinstance(key, str) and (key in _REFUSED_KEYS or is_neutral(key))


def _unknown_family(given: Mapping[Any, Any]) -> Fault:
    known = ", ".join(FAMILIES)
    if "model_type" not in given:
        return Fault(path="model_type", problem=f"missing; add model_type: one of {known}")
    value = given["model_type"]
    problem = f"{shown(value)} is not modelled yet; set one of {known}{did_you_mean(value, FAMILIES)}"
    return Fault(path="model_type", problem=problem)


def own_name(key: Any, family: Family) -> Any:
    """The family's own name of a key that `transformers` or Megatron calls otherwise."""
    if not isinstance(key, str) or key in family.names():
        return key
    field = OTHER_NAMES.get(key.replace("-", "_"), "")
    return family.keys[field].name if field in family.keys else key


def own_names(given: Mapping[Any, Any], family: Family) -> tuple[dict[Any, Any], list[Fault]]:
    """The same keys under the family's own names, and a fault for each that is given twice with different values."""
    values, faults = {key: value for key, value in given.items() if own_name(key, family) == key}, []
    for key, value in given.items():
        own = own_name(key, family)
        if own == key or values.setdefault(own, value) == value:
            continue
        problem = f"{shown(value)}, but {own} (the same thing) is {shown(values[own])}; keep one of the two"
        faults.append(Fault(path=key_name(key), problem=problem))
    return values, faults


def own_key(given: Mapping[Any, Any], key: str) -> str:
    """The name that a key has in this `config.json`'s family."""
    family = family_of(given)
    return key if family is None else str(own_name(key, family))


def override(given: Mapping[Any, Any], key: str, value: Any) -> dict[Any, Any]:
    """The keys of a `config.json` with one set anew, whatever name it has there."""
    own = own_key(given, key)
    return {other: old for other, old in given.items() if own_key(given, other) != own} | {own: value}


def _derive(fields: dict[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    """Fill in the fields that follow from others, with a fault where they cannot."""
    heads, hidden = fields.get("heads"), fields.get("hidden")
    fields.setdefault("max_positions", 0)
    if isinstance(hidden, int) and _left_out("ffn", family, given):
        fields["ffn"] = 4 * hidden
    if isinstance(heads, int) and _left_out("kv_heads", family, given):
        fields["kv_heads"] = heads
    yield from _uneven_groups(fields, family)
    if isinstance(heads, int) and isinstance(hidden, int) and _left_out("head_dim", family, given):
        if hidden % heads:
            key = family.keys
            problem = f"{hidden} is not a multiple of the {heads} heads ({key['heads'].name}) and no head_dim is given"
            yield Fault(path=key["hidden"].name, problem=f"{problem}; set {near_multiples(hidden, heads)}")
        else:
            fields["head_dim"] = hidden // heads
    yield from _odd_heads(fields, family, given)


def _left_out(field: str, family: Family, given: Mapping[Any, Any]) -> bool:
    """Whether a field rightly has no value of its own, so that it follows from others."""
    key = family.keys.get(field)
    if key is None:
        return True
    return (key.nullable and given[key.name] is None) if key.name in given else not key.required


def _odd_heads(fields: Mapping[str, Scalar], family: Family, given: Mapping[Any, Any]) -> Iterator[Fault]:
    head_dim = fields.get("head_dim")
    if fields["rope"] and isinstance(head_dim, int) and head_dim % 2:
        own = family.keys.get("head_dim")
        at = own.name if own and given.get(own.name) is not None else family.keys["hidden"].name
        problem = f"makes heads {head_dim} wide, and rotary embedding turns pairs; make the head width even"
        yield Fault(path=at, problem=f"{shown(given.get(at))} {problem}")


def _uneven_groups(fields: Mapping[str, Scalar], family: Family) -> Iterator[Fault]:
    heads, kv_heads = fields.get("heads"), fields.get("kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int) and heads % kv_heads:
        problem = f"{kv_heads} does not divide the {heads} query heads; set one of {divisors(heads)}"
        yield Fault(path=family.keys["kv_heads"].name, problem=problem)
