"""Features of a `config.json` that are known but not modelled, by configs/model-keys.json; they are refused, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from predict.huggingface.families import FAMILIES
from predict.huggingface.families.family import FULL_ATTENTION, LAYER_TYPES, MODEL_KEYS, Family
from sampling.files.faults import Fault, shown

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
