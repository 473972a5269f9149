"""Settings from a command line, such as `plan.tp=2`, which replace what a run's files say."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from predict.config.aliases import DOTTED, alias_of
from sampling.files.documents import NotYamlError, parse_yaml
from sampling.files.faults import Fault, join, shown

OPTION = "--set"
"""The option that gives them, named in errors as the source of their values."""


def flag(name: str) -> str:
    """The option of a command line by its name in Python: `memory_limit` → `--memory-limit`; `overrides` is `--set`."""
    return OPTION if name == "overrides" else f"--{name.replace('_', '-')}"


class Override(NamedTuple):
    """A value for one key of a section, or for the whole section where `key` is empty."""

    section: str
    key: str
    value: Any

    @property
    def path(self) -> str:
        return join(self.section, self.key)


def parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[Fault]]:
    """The settings, with aliases replaced, and a fault for each text that is not one. Values are read as YAML."""
    settings, faults = [], []
    for text in texts:
        path, equals, written = text.partition("=")
        path = path.strip()
        if not equals or not all(path.split(".")):
            problem = f"{shown(text)} is not a setting; write KEY=VALUE, for example plan.tp=2"
            faults.append(Fault(path=OPTION, problem=problem))
            continue
        try:
            value, duplicates = parse_yaml(written)
        except NotYamlError:
            problem = f"{shown(text)} has a value that is not YAML; quote it, for example 'plan.schedule=\"1f1b\"'"
            faults.append(Fault(path=OPTION, problem=problem))
            continue
        faults += [fault.under(path) for fault in duplicates]
        settings.append(_setting(path, value))
    return settings, faults


def as_settings(values: Mapping[str, Any]) -> list[str]:
    """Values by their paths as the texts of settings."""
    return [f"{path}={json.dumps(value)}" for path, value in values.items()]


def _setting(path: str, value: Any) -> Override:
    section, _, key = path.partition(".")
    alias = DOTTED.get(path)
    if alias is None:
        alias = alias_of(key or section)
        if alias is None or (key and alias.section != section):
            return Override(section=section, key=key, value=value)
    return Override(section=alias.section, key=alias.key, value=alias.convert(value))
