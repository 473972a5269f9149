"""A run config on its way in: its sections from their files, with aliases replaced and settings put over them.

Each method returns the sound values of a section, and adds what is wrong with the others to `faults`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from predict.config.aliases import ALIASES, names_for, resolve
from predict.config.choices import search_takes
from predict.config.document import Config, read_config, value_at
from predict.config.overrides import OPTION, Override, as_settings, parse_overrides
from predict.huggingface.config_json import ModelReading, override, own_key, read_model, with_model_type
from predict.kinds import RL, SERVING, require_kind
from predict.model.shipped import name_of_file, shipped_model, shipped_models
from predict.model.spec import ModelSpec
from predict.run.adapters import Adapters
from predict.run.execution import WHOLE_LAYERS, Execution
from predict.run.frameworks import ON_GPUS, framework_names, framework_settings, of_model
from predict.run.offload import Offload
from predict.run.plan import BEST, Batch, Plan
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from predict.run.vision import Vision
from predict.schedules.registry import names as schedule_names
from sampling.errors import ConfigError, UserError
from sampling.files.disk import is_file, is_missing
from sampling.files.documents import read_json, read_yaml
from sampling.files.faults import Fault, config_error, did_you_mean, key_name, nearest, shown, source_of
from sampling.files.places import CONFIGS
from sampling.files.schema import MOST_TOLD, MOST_UNKNOWN, Key, check, keys_of, with_texts
from sampling.hardware.cluster import ClusterFile, hardware_beside, hardware_facts

# The sections of a run config, and the keys of each: those of the dataclass that the section becomes.

DECLARED_BY: Mapping[str, type] = {
    "cluster": ClusterFile,
    "plan": Plan,
    "batch": Batch,
    "execution": Execution,
    "adapters": Adapters,
    "offload": Offload,
    "tuning": Tuning,
    "vision": Vision,
}
"""Section → the dataclass whose fields are its keys, and whose docstrings say what they mean."""
ORDER_FILE = r".+\.([cC][sS][vV]|[jJ][sS][oO][nN])"
SECTIONS: Mapping[str, tuple[Key, ...]] = {section: keys_of(of) for section, of in DECLARED_BY.items()} | {
    "plan": with_texts(keys_of(Plan), schedule=Key(choices=lambda: (*schedule_names(), BEST), pattern=ORDER_FILE)),
    "execution": with_texts(keys_of(Execution), framework=Key(choices=framework_names)),
}
PRECISION = next(key for key in keys_of(TrainingRun) if key.name == "precision")


# Shipped models and clusters, which a config may name in place of the path of a file.

CLUSTERS = CONFIGS / "clusters"
PATH = re.compile(r"(?is).*\.(json|ya?ml)")


def shipped_file(section: str, name: str) -> Path | None:
    """The file of the shipped model or cluster that goes by `name`; None for paths and unknown names."""
    if PATH.fullmatch(name):
        return None
    if section == "model":
        return shipped_model(name)
    return CLUSTERS / f"{name}.yml" if name in shipped_names(section) else None


def shipped_names(section: str) -> Sequence[str]:
    return shipped_models() if section == "model" else sorted(path.stem for path in CLUSTERS.glob("*.yml"))


def as_read(section: str, name: str, path: Path) -> str:
    """The way in which the text at a section was read, in front of what is wrong with the file: as a path, or as a name
    that none goes by."""
    if PATH.fullmatch(name):
        return f"{shown(name)} (that is {path})"
    names = shipped_names(section)
    nearest = did_you_mean(name.lower(), names) or f" ({_listed(section, names)})."
    return f"{shown(name)} is not the name of a shipped {section}{nearest} As a path, {shown(str(path))}"


MOST_LISTED = 20
"""Names that a refusal lists; it says where more of them are."""


def _listed(section: str, names: Sequence[str]) -> str:
    if len(names) <= MOST_LISTED:
        return f"known: {', '.join(names)}"
    return (
        f"the {len(names)} known ones are in configs/{section}s; of any other, save its config.json and give the path"
    )


def shipped_instead(section: str, name: str, path: Path) -> str:
    """The shipped name that a path of no file may stand for, such as a copied config's; nothing where the file is there."""
    near = [] if not is_missing(path) or not PATH.fullmatch(name) else nearest(Path(name).stem, shipped_names(section))
    return f", or give a shipped {section} by its name: {' or '.join(near)}" if near else ""


Values = dict[str, Any]
NAMES: Mapping[str, str] = {section: ", ".join(key.name for key in keys) for section, keys in SECTIONS.items()}
CONTENTS: Mapping[str, str] = {
    "model": "a shipped model's name, the path of a Hugging Face config.json, or its keys",
    "cluster": f"a shipped cluster's name, the path of a YAML file with {NAMES['cluster']}, or these keys",
    "plan": f"any of {NAMES['plan']}",
    "batch": NAMES["batch"],
    "precision": PRECISION.allowed(),
    **{section: f"any of {NAMES[section]}" for section in ("execution", "adapters", "offload", "tuning", "vision")},
}
"""Key of the top level → its contents, in words."""
REQUIRED_SECTIONS = ("model", "cluster", "batch")
KEYS_OF_A_MODEL = {"architectures", "model_type"}
"""Keys that the config.json of a model of Hugging Face has, and no file of a run, of this project or of another tool."""
CHOOSES: Mapping[str, str] = {"adapters": "kind", "vision": "images"}
"""Section → the key without which its others would change nothing."""
SEARCHED: Mapping[str, str] = {"batch.micro": "; `predict search` chooses it where it is left out"}
"""Required key that a search does without → advice where it is missing."""
SUFFIXES = (".yml", ".yaml", ".json")
FILES = {"model": read_json, "cluster": read_yaml}
"""Sections that may be the path of a file, with its reader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The document of a run, the settings over it, where values came from, and the faults so far."""

    path: Path
    document: dict[Any, Any]
    model_keys: Mapping[str, Any]
    """Keys of the model that were given at the top level."""
    settings: list[Override]
    sources: dict[str, str]
    """Key path → the file or option that its value came from."""
    faults: list[Fault]
    set_paths: frozenset[str] = frozenset()
    """Key paths, or whole sections, that settings give."""
    given: frozenset[str] = frozenset()
    """Key paths that the config or a setting gives a value, rather than a default."""

    def model(self) -> ModelReading:
        """The model from its file or keys, with the keys given at the top level and the settings over it."""
        if self.model_keys:
            self.document.setdefault("model", {})
        given = self.mapping("model")
        if given is None:
            return ModelReading(values={}, faults=[], spec=None)
        for key, value in self.model_keys.items():
            if given.setdefault(key, value) != value:
                problem = f"{shown(value)}, but the model says {shown(given[key])}; keep one of the two"
                self._blame(key, f"{problem}, or use {OPTION} model.{key}=… to change the model")
        for setting in self._settings_of("model"):
            self.sources[f"model.{own_key(given, setting.key)}"] = OPTION
            given = override(given, setting.key, setting.value)
        from_file = isinstance(self.document["model"], str)
        name = name_of_file(Path(self.sources["model"])) if from_file else str(with_model_type(given).get("model_type"))
        reading = read_model(given, name=name)
        self.faults.extend(replace(fault.under("model"), needs=("model",)) for fault in reading.faults)
        return replace(reading, keys=given)

    def section(self, section: str) -> Values:
        given = self.mapping(section)
        if given is None:
            return {}
        given |= {setting.key: setting.value for setting in self._settings_of(section)}
        values, faults = check(given, SECTIONS[section], section=section, also_known=names_for(section))
        for fault in faults:
            key = fault.path.removeprefix(f"{section}.")
            advice = search_takes(given[key]) if key in given else SEARCHED.get(fault.path, "")
            self.faults.append(replace(fault, problem=f"{fault.problem}{advice}"))
        values, lacking = without_choice(section, given, values)
        self.faults.extend(lacking)
        meant = misspelt(given, SECTIONS[section], also_known=names_for(section))
        return {name: value for name, value in values.items() if name not in meant}

    def execution(self, hardware: str | None, model: ModelSpec | None) -> Values:
        """The framework's settings for a model, and those of the run over them."""
        facts = hardware_facts(hardware) if hardware else None
        given = self.document.get("execution")
        own = dict(given) if isinstance(given, dict) else {}
        chosen = own | {setting.key: setting.value for setting in self._settings_of("execution")}
        framework = chosen.get("framework", WHOLE_LAYERS if facts and facts.kind == "cpu" else ON_GPUS)
        if isinstance(given, dict) or given is None:
            architecture = facts.architecture if facts else ""
            settings = framework_settings(framework, architecture) if framework in framework_names() else {}
            self.document["execution"] = {**of_model(settings, model), "framework": framework, **own}
        return self.section("execution")

    def precision(self) -> Values:
        values, faults = check({key: self.document[key] for key in self.document if key == PRECISION.name}, [PRECISION])
        self.faults.extend(faults)
        return values

    def with_own_paths(self, cluster: Values) -> Values:
        """The cluster's values, without a hardware that no file describes, or one that is at fault; its path, and that of a
        calibration, are relative to the file that gives them."""
        if "calibration" in cluster:
            beside = self._file_of("cluster.calibration").parent / cluster["calibration"]
            cluster = cluster | {"calibration": os.path.normpath(beside)}
        try:
            if "hardware" in cluster:
                cluster = cluster | {
                    "hardware": hardware_beside(cluster["hardware"], self._file_of("cluster.hardware"))
                }
                hardware_facts(cluster["hardware"])
        except ConfigError as error:
            for problem in str(error).splitlines():
                self._blame("cluster.hardware", problem)
            return {key: value for key, value in cluster.items() if key != "hardware"}
        return cluster

    def error(self, faults: Sequence[Fault] = ()) -> UserError:
        """One error of its faults, or of others; one across keys names the settings whose values it looked at. Those of what a setting
        gives come first, since what else is wrong may follow from it."""
        found = sorted(faults or self.faults, key=lambda fault: source_of(fault.path, self.sources) != OPTION)
        return config_error(map(self._with_settings, found), self.sources)

    def _with_settings(self, fault: Fault) -> Fault:
        if source_of(fault.path, self.sources) == OPTION:
            return fault
        set_before = [path for path, source in self.sources.items() if source == OPTION]
        values = {path: value for path in set_before if (value := value_at(self.document, path)) is not None}
        values |= {setting.path: setting.value for setting in self.settings}
        looked_at = {path: value for path, value in values.items() if _is_needed(path, fault.needs)}
        return replace(fault, given_with=" ".join(f"{OPTION} {setting}" for setting in as_settings(looked_at)))

    def _file_of(self, path: str) -> Path:
        """The file that a key of the cluster is given in; the config for one that a setting gives."""
        return self.path if self.is_set(path) else Path(self.sources.get("cluster", self.path))

    def is_set(self, path: str) -> bool:
        """Whether a setting, not a file, gave the value of a key or its whole section."""
        return OPTION in (self.sources.get(path), self.sources.get(path.partition(".")[0]))

    def _blame(self, path: str, problem: str) -> None:
        self.faults.append(Fault(path=path, problem=problem))

    def _settings_of(self, section: str) -> list[Override]:
        return [setting for setting in self.settings if setting.section == section and setting.key]

    def mapping(self, section: str) -> dict[Any, Any] | None:
        """A section's keys, from the file that it names where it may name one; None, with a fault, if there are none."""
        value = self.document.get(section, {})
        if isinstance(value, dict):
            if section not in self.document and section in REQUIRED_SECTIONS:
                self._blame(section, f"missing; give {CONTENTS[section]}")
                return None
            return dict(value)
        if section not in FILES or not isinstance(value, str):
            or_path = ", a name or a path" if section in FILES else ""
            self._blame(section, f"{shown(value)} is not a mapping of keys{or_path}; give {CONTENTS[section]}")
            return None
        path = shipped_file(section, value) or Path(os.path.normpath(self.path.parent / value))
        given, faults = FILES[section](path)
        if given is None:
            advice = self._from_here(section, value) or shipped_instead(section, value, path)
            for fault in faults:
                self._blame(section, f"{as_read(section, value, path)}: {fault.problem}{advice}")
            return None
        self.sources[section] = str(path)
        self.faults.extend(fault.under(section) for fault in faults)
        return given

    def _from_here(self, section: str, value: str) -> str:
        """Advice for a setting's path that leads somewhere from the working directory alone."""
        if not self.is_set(section) or not is_file(value):
            return ""
        right = os.path.relpath(value, self.path.parent)
        return (
            f"; paths in {OPTION} count from the config's folder, {self.path.parent}: write {OPTION} {section}={right}"
        )


OF_MODEL = frozenset(field.name for field in fields(ModelSpec)) | {"model"}


def _is_needed(path: str, needs: Sequence[str]) -> bool:
    """Whether a setting gives one of the values that a rule looks at, by itself or with its whole section."""
    section, _, key = path.partition(".")
    if section == "model":
        return not OF_MODEL.isdisjoint(needs)
    return (key or section) in needs or (not key and any(each.name in needs for each in SECTIONS.get(section, ())))


def without_choice(section: str, given: Mapping[Any, Any], values: Values) -> tuple[Values, list[Fault]]:
    """The values, and a fault where a section has keys, but not the one without which they would change nothing: its default is then
    left out, so that rules on it are passed over and the one fault is reported once."""
    choice = CHOOSES.get(section)
    if choice is None or not given or choice in given:
        return values, []
    (key,) = (key for key in SECTIONS[section] if key.name == choice)
    problem = f"missing, so that {', '.join(map(str, given))} would change nothing; give {key.allowed()}"
    left = {name: value for name, value in values.items() if name != choice}
    return left, [Fault(path=f"{section}.{choice}", problem=problem)]


def misspelt(given: Mapping[Any, Any], keys: Sequence[Key], *, also_known: Iterable[str] = ()) -> set[str]:
    """The keys that are not given and that unknown ones may stand for: without their defaults, rules on them are passed over, whose fix
    would be wrong once the spelling is mended."""
    names = [key.name for key in keys]
    unknown = given.keys() - {*names, *also_known}
    return {near for name in unknown for near in nearest(name, names)} - given.keys()


def is_run_config(path: Path) -> bool:
    """Whether a YAML or JSON file has a section that every run config has; a file that cannot be read as either may be one."""
    if not is_missing(path) and path.suffix.lower() not in SUFFIXES:
        return False
    document, _ = read_yaml(path)
    return document is None or not set(REQUIRED_SECTIONS).isdisjoint(document)


def read_draft(config: Config, overrides: Sequence[str]) -> Draft:
    """The draft of a run config; ConfigError if it is not a mapping."""
    given = read_config(config)
    sources = given.sources
    require_kind(given.content, (RL, SERVING), sources)
    if given.content.keys() >= KEYS_OF_A_MODEL:
        problem = (
            "is the config.json of a model, not a run config; give it with --model, or its path under `model` of one"
        )
        raise config_error([Fault(path="", problem=problem)], sources)
    document, model_keys, clashes = resolve(given.content)
    settings, unreadable = parse_overrides(overrides)
    for setting in settings:
        sources[setting.path] = OPTION
        if setting.section not in CONTENTS:
            sources[setting.section] = OPTION
        if setting.key:
            document.setdefault(setting.section, {})
        else:
            document[setting.section] = setting.value
    return Draft(
        path=given.path,
        document=document,
        model_keys=model_keys,
        settings=settings,
        sources=sources,
        faults=[*map(_of_the_file, given.faults), *clashes, *unreadable, *_unknown_at_the_top(document)],
        set_paths=given.set_paths | {setting.path for setting in settings},
        given=frozenset([*_paths_of(document), *(setting.path for setting in settings)]),
    )


def _paths_of(document: Mapping[Any, Any]) -> Iterator[str]:
    for section, value in document.items():
        yield from (f"{section}.{key}" for key in value) if isinstance(value, dict) else [str(section)]


def _of_the_file(fault: Fault) -> Fault:
    """The same fault, blamed on the config itself whatever file or option gives the section in which it is."""
    return Fault(path="", problem=": ".join(filter(None, (fault.path, fault.problem))))


def _unknown_at_the_top(document: Mapping[Any, Any]) -> list[Fault]:
    unknown = [name for name in document if name not in CONTENTS]
    if len(unknown) > MOST_TOLD and len(unknown) == len(document):  # its content is not ours to show
        problem = f"none of its {len(unknown)} keys is one of a run config; give {', '.join(REQUIRED_SECTIONS)}"
        return [Fault(path="", problem=f"{problem} (`predict schema` describes them)")]
    faults = []
    for name in unknown[:MOST_UNKNOWN]:
        homes = [section for section, keys in SECTIONS.items() if any(key.name == name for key in keys)]
        nearest = did_you_mean(name, [*CONTENTS, *ALIASES]) or f"; allowed: {', '.join(CONTENTS)}"
        advice = f"put it under {homes[0]}" if homes else f"remove it{nearest}"
        faults.append(Fault(path=key_name(name), problem=f"unknown key at the top level; {advice}"))
    if len(unknown) > MOST_UNKNOWN:
        faults.append(Fault(path="", problem=f"{len(unknown) - MOST_UNKNOWN} more unknown keys; remove them"))
    return faults


# Settings of a config that its user does not know: `plan.vpp: unknown`.

UNKNOWN = "unknown"
ONE_CHUNK, INTERLEAVED = "1f1b", "interleaved-1f1b"
PLACEHOLDERS: Mapping[str, int | None] = {
    "plan.vpp": None,
    "plan.ep": None,
    "plan.recompute": None,
    "batch.micro": 1,
}
"""Keys that may be unknown, and their values meanwhile; None for the default."""


def without_unknown(draft: Draft) -> tuple[Draft, tuple[str, ...]]:
    """The draft with placeholders for the keys that are unknown, and those keys; a later setting replaces an earlier value.

    `plan.schedule` is among them where it is interleaved and its chunks are unknown.
    """
    document = {name: dict(value) if isinstance(value, dict) else value for name, value in draft.document.items()}
    stated = {setting.path: setting.value for setting in draft.settings}
    unknown = [path for path in PLACEHOLDERS if stated.get(path, _given(document, path)) == UNKNOWN]
    for path in unknown:
        section, _, key = path.partition(".")
        document[section].pop(key, None)
        if (value := PLACEHOLDERS[path]) is not None:
            document[section][key] = value
    if "plan.vpp" in unknown and stated.get("plan.schedule", _given(document, "plan.schedule")) == INTERLEAVED:
        document["plan"]["schedule"] = ONE_CHUNK  # runs the one chunk of the placeholder
        unknown.append("plan.schedule")
    settings = [setting for setting in draft.settings if setting.path not in unknown]
    return replace(draft, document=document, settings=settings), tuple(unknown)


def _given(document: Mapping[Any, Any], path: str) -> Any:
    section, _, key = path.partition(".")
    given = document.get(section)
    return given.get(key) if isinstance(given, dict) else None


def refusals(unknown: Sequence[str]) -> list[Fault]:
    """A fault for each key that is unknown, where one run is asked for."""
    fix = "only `predict one-batch CONFIG` and predict.likely_steps take it; give a value here"
    return [Fault(path=path, problem=f"{UNKNOWN}: {fix}") for path in unknown if path in PLACEHOLDERS]
