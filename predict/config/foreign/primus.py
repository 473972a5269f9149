"""Primus' YAML: an experiment whose module `pre_trainer` overrides a preset of Megatron-LM's or torchtitan's arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sampling.files.documents import parse_yaml
from sampling.files.plain_yaml import NotYamlError

MODULES, TRAINER = "modules", "pre_trainer"
VARIABLE = re.compile(r"\$\{\w+(?::([^${}]*))?\}")
"""`${PRIMUS_TP:1}`: a variable of the environment with its default."""
SUFFIX = re.compile(r"(_v0\.\d)?\.ya?ml$")
"""The end of a preset's file name, and Mistral's version, which says nothing of the sizes."""


def is_primus(document: Mapping[Any, Any]) -> bool:
    modules = document.get(MODULES)
    return isinstance(modules, Mapping) and isinstance(modules.get(TRAINER), Mapping)


def framework(document: Mapping[Any, Any]) -> str:
    """The framework of the trainer, in lower case: megatron, torchtitan, …"""
    return str(document[MODULES][TRAINER].get("framework", "megatron")).lower()


def overridden(document: Mapping[Any, Any]) -> dict[str, Any]:
    """The trainer's overrides, each variable replaced by its default."""
    given = document[MODULES][TRAINER].get("overrides") or {}
    return {str(name): _settled(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def model_name(document: Mapping[Any, Any]) -> str:
    """The name of the preset of the model, without its suffix: `deepseek_v3` of `${PRIMUS_MODEL:deepseek_v3}.yaml`."""
    return SUFFIX.sub("", str(_settled(str(document[MODULES][TRAINER].get("model", "")))))


def _settled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _settled(each) for name, each in value.items()}
    if not isinstance(value, str) or "${" not in value:
        return value
    text = VARIABLE.sub(lambda found: found[1] or "", value)
    try:
        return parse_yaml(text)[0]
    except NotYamlError:
        return text
