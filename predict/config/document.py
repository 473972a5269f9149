"""A config of any kind as it comes in: from a file, from a mapping or as it was made, with settings put into their sections."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from predict.config.overrides import OPTION, parse_overrides
from predict.kinds import KINDS, LoadedRun
from sampling.errors import ConfigError, UserError
from sampling.files.documents import read_yaml
from sampling.files.faults import Fault, config_error, shown

UNNAMED = "config"
"""Name of the run of a mapping, which has none."""
PLAIN = re.compile(r"[A-Za-z/.][\w./+-]*")
"""Text that YAML reads as itself without quotes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The content of a config that was made rather than read from a file. Paths in it count from the working directory."""

    name: str
    """The name of the run, as a file's stem would give it."""
    content: Mapping[str, Any]
    """Section → its keys, or one value."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Key path → the option that its value came from, for messages."""
    set_paths: frozenset[str] = frozenset()
    """Key paths in it, or whole sections, that settings gave."""

    def with_settings(self, texts: Sequence[str]) -> Document:
        """The same with settings such as `plan.tp=2` in their sections; those inside a section that is named by its file, such as a
        model, have no place, and are left out. ConfigError for any other that has none, and for a text that is no setting."""
        content, sources = copy.deepcopy(dict(self.content)), dict(self.sources)
        settings, faults = parse_overrides(texts)
        for setting in settings:
            sources[setting.path] = OPTION
            if setting.section not in content:
                sources[setting.section] = OPTION
            if not (setting.key and isinstance(content.get(setting.section), str)):
                faults += put(content, setting.path, setting.value, over=True)
        if faults:
            raise config_error(faults, sources)
        return replace(self, content=content, sources=sources)

    def as_yaml(self) -> str:
        """The config as a YAML file, one section per line."""
        return "".join(f"{section}: {_written(value)}\n" for section, value in self.content.items())


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


Config = Path | str | Mapping[str, Any] | Document | LoadedRun
"""A config: its file, its content as a mapping, or as it was made; or the run that was loaded from one."""
Resolve = Callable[[str, Any], tuple[str, Any]]
"""From the path and value of a setting to the key that another tool's name stands for."""


def name_of(config: Config) -> str:
    """The name of a config's run."""
    return path_of(config).stem


def path_of(config: Config) -> Path:
    """The file of a config, or for one without a file a name for it in the folder from which its paths count."""
    if isinstance(config, str | Path):
        return Path(config)
    return Path(f"{config.name if isinstance(config, Document | LoadedRun) else UNNAMED}.yml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """The content of a config on its way in, where its values came from, and the faults so far."""

    path: Path
    content: dict[Any, Any]
    sources: dict[str, str]
    """Key path → the file or option that its value came from."""
    faults: list[Fault]
    set_paths: frozenset[str] = frozenset()
    """Key paths, or whole sections, that settings gave before."""

    def put_settings(
        self, texts: Sequence[str], files: Collection[str], resolve: Resolve = lambda path, value: (path, value)
    ) -> list[str]:
        """Put settings into their sections; the texts of those inside one of the sections `files` that the config names by a file, where
        they have no place yet."""
        of_files = []
        for text in texts:
            settings, faults = parse_overrides([text])
            self.faults.extend(faults)
            for setting in settings:
                path, value = resolve(setting.path, setting.value)
                self.sources[path] = OPTION
                section, _, key = path.partition(".")
                if section not in self.content:
                    self.sources[section] = OPTION
                if key and section in files and isinstance(self.content.get(section), str):
                    of_files.append(f"{path}={text.partition('=')[2]}")
                else:
                    self.faults.extend(put(self.content, path, value, over=True))
        return of_files


def read_config(config: Config) -> Incoming:
    """The content of a config, which may be changed; ConfigError if it is not a mapping."""
    if isinstance(config, str | Path):
        sources = {"": str(config)}
        content, faults = read_yaml(Path(config))
        if content is None:
            raise config_error(faults, sources)
        return Incoming(path=Path(config), content=content, sources=sources, faults=faults)
    if isinstance(config, LoadedRun):
        raise UserError(
            f"{config.name}: it is a loaded run of {KINDS[config.kind].title}; give the config itself, by its path or as a mapping"
        )
    if not isinstance(config, Document | Mapping):
        raise ConfigError(
            f"{shown(config)} is not a config; give the path of one, a mapping of its sections, or what default_config makes"
        )
    made = config if isinstance(config, Document) else Document(name=UNNAMED, content=config)
    return Incoming(
        path=path_of(made),
        content=copy.deepcopy(dict(made.content)),
        sources=dict(made.sources),
        faults=[],
        set_paths=made.set_paths,
    )


def value_at(content: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def put(document: dict[Any, Any], path: str, value: Any, *, over: bool, given_as: str = "") -> list[Fault]:
    """Put a value at a dotted path; one that is there is replaced with `over`, and otherwise a fault where it differs."""
    *sections, key = path.split(".")
    place = document
    for section in sections:
        inner = place.setdefault(section, {})
        if not isinstance(inner, dict):
            problem = f"{section} is {shown(inner)}; a key of it can be set only where it is a mapping"
            return [Fault(path=given_as or path, problem=problem)]
        place = inner
    if over or key not in place:
        place[key] = value
    elif place[key] != value:
        problem = f"{shown(value)}, but {path} (the same thing) is {shown(place[key])}; keep one of the two"
        return [Fault(path=given_as or path, problem=problem)]
    return []
