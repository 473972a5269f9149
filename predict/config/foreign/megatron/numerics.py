"""Megatron-LM's arguments that change a model's results and no cost, both ways: the base of the rotary angles and the norms' epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from predict.config.foreign.arguments import Arguments
from predict.config.foreign.statement import Statement
from predict.model.shipped import shipped_model
from sampling.files.documents import read_json

BASE, EPSILON = "rotary_base", "norm_epsilon"
EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
"""The keys of a `config.json` for the norms' epsilon."""


def write_numerics(keys: Mapping[str, Any], statement: Statement) -> None:
    """Add the arguments for the keys of a model's `config.json`; Megatron-LM's own defaults are 10,000 and 1e-5."""
    numerics = _of_config(keys)
    if statement.arguments["position_embedding_type"] != "rope":
        numerics.pop(BASE, None)
    statement.say(**numerics)


def with_numerics(section: str | dict[str, Any], given: Arguments) -> str | dict[str, Any]:
    """The `model` section with the numbers that are given; a shipped model's name stays, with a note on each number that it has
    otherwise. What is not a number stays among what is not read."""
    read = {name: number for name in (BASE, EPSILON) if (number := _number(given.values.get(name)))}
    given.passed_over(*read)
    if isinstance(section, str):
        path = shipped_model(section)
        own = _of_config((path and read_json(path)[0]) or {})
        for name, number in read.items():
            if own.get(name, number) != number:
                given.notes.append(f"{name}: {given.values[name]}, and {own[name]} in {section}; it changes no cost")
        return section
    epsilon = EPSILONS[0] if given.values.get("normalization") == "RMSNorm" else EPSILONS[2]
    names = {BASE: "rope_theta", EPSILON: epsilon}
    return {**section, **{names[name]: _plain(number) for name, number in read.items()}}


def _of_config(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for the keys of a `config.json`, as far as it has them."""
    angles = {**(keys.get("rope_parameters") or {}), **keys}
    base = angles.get("rope_theta")
    epsilon = next((keys[name] for name in EPSILONS if keys.get(name)), None)
    found = {BASE: base and int(base), EPSILON: epsilon}
    return {name: number for name, number in found.items() if number}


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _plain(number: float) -> float:
    """A whole number without its fraction, as configs have the base."""
    return int(number) if number.is_integer() else number
