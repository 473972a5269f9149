"""A run's YAML file, with overrides and aliases, to a TrainingRun; every fault of it in one ConfigError.

    model: ../models/llama3-8b.json        # a Hugging Face config.json, relative to this file, or its keys
    cluster: ../clusters/this-machine.yml  # or {hardware: cpu, nodes: 1, gpus_per_node: 2, profile: this-machine}
    plan: {tp: 1, pp: 2, schedule: 1f1b}   # the keys of Plan, each with its default
    batch: {global: 8, micro: 1, seq_len: 512}
    precision: fp32

What is well-formed but not modelled yet is refused, never ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from predict.config.aliases import ALIASES, names_for, resolve
from predict.config.json_schema import json_schema
from predict.config.overrides import OPTION, Override, parse_overrides
from predict.config.rules import broken_rules
from predict.config.sections import PRECISION, SECTIONS
from predict.model.huggingface import ModelReading, override, own_key, read_model
from predict.model.spec import ModelSpec
from predict.run.execution import WHOLE_LAYERS, Execution
from predict.run.frameworks import ON_GPUS, framework_names, framework_settings
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.schedules.files.order_files import is_order_file, read_order
from sampling.errors import ConfigError
from sampling.files.documents import Read, read_json, read_yaml
from sampling.files.faults import Fault, config_error, did_you_mean, key_name, shown
from sampling.files.schema import check
from sampling.hardware.cluster import hardware_facts, load_cluster
from sampling.store.manifest import read_manifest
from sampling.store.profiles import DATA, home_of, samples_directory

__all__ = ["build", "json_schema", "load"]

Values = dict[str, Any]
CONTENTS: Mapping[str, str] = {
    "model": "the path of a Hugging Face config.json, or its keys",
    "cluster": f"the path of a YAML file with {', '.join(key.name for key in SECTIONS['cluster'])}, or these keys",
    "plan": f"any of {', '.join(key.name for key in SECTIONS['plan'])}",
    "batch": ", ".join(key.name for key in SECTIONS["batch"]),
    "precision": PRECISION.allowed(),
    "execution": f"any of {', '.join(key.name for key in SECTIONS['execution'])}",
}
"""What each key of the top level holds."""
REQUIRED_SECTIONS = ("model", "cluster", "batch")


def load(path: Path | str, overrides: Sequence[str] = ()) -> TrainingRun:
    """Read a run; `overrides` are `plan.tp=2`-like settings that replace what the files say.

    Paths inside the file, and those in overrides, are relative to the file's directory, but for an order file in an
    override, which is relative to the current one, as that of `predict schedule --schedule` is. Raises ConfigError with one
    line a fault, and SamplesError for a damaged manifest of the cluster's profile.
    """
    path = Path(path)
    document, faults = read_yaml(path)
    if document is None:
        raise config_error(faults, {"": str(path)})
    document, model_keys, clashes = resolve(document)
    settings, unreadable = parse_overrides(overrides)
    draft = _Draft(
        path=path,
        document=document,
        settings=settings,
        sources={"": str(path)},
        faults=[*faults, *clashes, *unreadable],
    )
    _place_settings(draft)
    _check_top_level(draft)
    model = _model(draft, model_keys)
    checked = {section: _section(draft, section) for section in ("cluster", "plan", "batch")}
    checked["cluster"] = _with_described_hardware(draft, checked["cluster"])
    checked["execution"] = _execution(draft, checked["cluster"].get("hardware"))
    if OPTION not in (draft.sources.get("plan.schedule"), draft.sources.get("plan")):
        checked["plan"] |= _order_file(checked["plan"].get("schedule"), path)
    checked["precision"] = _precision(draft)
    of_model = dict(model.values) | ({"model": model.spec} if model.spec else {})
    draft.faults.extend(broken_rules({**of_model, **_flat(checked)}))
    if draft.faults or model.spec is None:
        raise config_error(draft.faults, draft.sources)
    checked["cluster"] = _with_cores(checked["cluster"])
    if crowded := list(broken_rules(checked["cluster"])):
        raise config_error(crowded, draft.sources)
    return _run(path.stem, model.spec, checked)


def build(name: str, model: ModelSpec, sections: Mapping[str, Any]) -> TrainingRun:
    """The run of a model and the sections of a config, `precision` among them; ConfigError with one line a fault."""
    faults: list[Fault] = []
    checked: dict[str, Values] = {}
    framework = sections.get("execution", {}).get("framework", ON_GPUS)
    hardware = sections.get("cluster", {}).get("hardware")
    architecture = hardware_facts(hardware).architecture if hardware else ""
    settings = {
        **framework_settings(framework, architecture),
        **sections.get("execution", {}),
        "framework": framework,
    }
    for section, keys in SECTIONS.items():
        given = settings if section == "execution" else sections.get(section, {})
        values, wrong = check(given, keys, section=section)
        checked[section] = dict(values)
        faults += wrong
    precision, wrong = check({"precision": sections.get("precision")}, [PRECISION])
    checked["precision"] = dict(precision)
    of_model = {field.name: getattr(model, field.name) for field in fields(model)}
    faults += [*wrong, *broken_rules({**of_model, "model": model, **_flat(checked)})]
    if faults:
        raise config_error(faults, {"": name})
    return _run(name, model, checked)


def _flat(checked: Mapping[str, Values]) -> Values:
    return {key: value for values in checked.values() for key, value in values.items()}


def _run(name: str, model: ModelSpec, checked: Mapping[str, Values]) -> TrainingRun:
    batch, schedule = checked["batch"], checked["plan"]["schedule"]
    return TrainingRun(
        name=name,
        model=model,
        cluster=load_cluster(**checked["cluster"]),
        plan=Plan(**checked["plan"]),
        batch=Batch(global_=batch["global"], micro=batch["micro"], seq_len=batch["seq_len"]),
        precision=checked["precision"]["precision"],
        execution=Execution(**checked["execution"]),
        order=read_order(Path(schedule)) if is_order_file(schedule) else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """A run on its way in: its document, the settings over it, where values came from, and what is wrong so far."""

    path: Path
    document: dict[Any, Any]
    settings: list[Override]
    sources: dict[str, str]
    """Key path → the file or option that its value came from."""
    faults: list[Fault]

    def blame(self, path: str, problem: str) -> None:
        self.faults.append(Fault(path=path, problem=problem))

    def settings_of(self, section: str) -> list[Override]:
        return [setting for setting in self.settings if setting.section == section and setting.key]


def _order_file(schedule: str | None, path: Path) -> Values:
    """A schedule that is a file with an order lies beside the run, like all its paths."""
    if schedule is None or not is_order_file(schedule):
        return {}
    return {"schedule": str(path.parent / schedule)}


def _place_settings(draft: _Draft) -> None:
    """Put settings of whole sections into the document, and make the sections that only settings name."""
    for setting in draft.settings:
        draft.sources[setting.path] = OPTION
        if setting.key:
            draft.document.setdefault(setting.section, {})
        else:
            draft.document[setting.section] = setting.value


def _check_top_level(draft: _Draft) -> None:
    for name in draft.document:
        if name not in CONTENTS:
            homes = [section for section, keys in SECTIONS.items() if any(key.name == name for key in keys)]
            nearest = did_you_mean(name, [*CONTENTS, *ALIASES]) or f"; allowed: {', '.join(CONTENTS)}"
            advice = f"put it under {homes[0]}" if homes else f"remove it{nearest}"
            draft.blame(key_name(name), f"unknown key at the top level; {advice}")


def _model(draft: _Draft, model_keys: Mapping[str, Any]) -> ModelReading:
    """The model from its file or inline keys, with the keys given at the top level and the settings over it."""
    if model_keys:
        draft.document.setdefault("model", {})
    given = _mapping(draft, "model", read_json)
    if given is None:
        return ModelReading(values={}, faults=[], spec=None)
    for key, value in model_keys.items():
        if given.setdefault(key, value) != value:
            problem = f"{shown(value)}, but the model says {shown(given[key])}; keep one of the two"
            draft.blame(key, f"{problem}, or use {OPTION} model.{key}=… to change the model")
    for setting in draft.settings_of("model"):
        own = own_key(given, setting.key)
        draft.sources[f"model.{own}"] = OPTION
        given = override(given, setting.key, setting.value)
    source = draft.document["model"]
    name = Path(source).stem if isinstance(source, str) else str(given.get("model_type"))
    reading = read_model(given, name=name)
    draft.faults.extend(fault.under("model") for fault in reading.faults)
    return reading


def _section(draft: _Draft, section: str) -> Values:
    """The sound values of plan, batch or cluster."""
    given = _mapping(draft, section, read_yaml)
    if given is None:
        return {}
    given |= {setting.key: setting.value for setting in draft.settings_of(section)}
    values, faults = check(given, SECTIONS[section], section=section, also_known=names_for(section))
    draft.faults.extend(faults)
    return dict(values)


def _execution(draft: _Draft, hardware: str | None) -> Values:
    """The framework's settings, and over them those of the run."""
    facts = hardware_facts(hardware) if hardware else None
    given = draft.document.get("execution")
    own = dict(given) if isinstance(given, dict) else {}
    chosen = own | {setting.key: setting.value for setting in draft.settings_of("execution")}
    framework = chosen.get("framework", ON_GPUS if facts and facts.kind != "cpu" else WHOLE_LAYERS)
    architecture = facts.architecture if facts else ""
    settings = framework_settings(framework, architecture) if framework in framework_names() else {}
    if isinstance(given, dict) or given is None:
        draft.document["execution"] = {**settings, "framework": framework, **own}
    return _section(draft, "execution")


def _mapping(draft: _Draft, section: str, read: Callable[[Path], Read]) -> dict[Any, Any] | None:
    """A section's keys, from the file that it names where it may name one; None, with a fault, if there are none."""
    value = draft.document.get(section, {})
    from_file = section in ("model", "cluster")
    if isinstance(value, dict):
        if section not in draft.document and section in REQUIRED_SECTIONS:
            draft.blame(section, f"missing; give {CONTENTS[section]}")
            return None
        return dict(value)
    if not (from_file and isinstance(value, str)):
        draft.blame(
            section,
            f"{shown(value)} is not a mapping of keys{' or a path' if from_file else ''}; give {CONTENTS[section]}",
        )
        return None
    path = Path(os.path.normpath(draft.path.parent / value))
    given, faults = read(path)
    if given is None:
        draft.faults.extend(
            Fault(path=section, problem=f"{shown(value)} (that is {path}): {fault.problem}") for fault in faults
        )
        return None
    draft.sources[section] = str(path)
    draft.faults.extend(fault.under(section) for fault in faults)
    return given


def _precision(draft: _Draft) -> Values:
    given = {key: value for key, value in draft.document.items() if key == PRECISION.name}
    values, faults = check(given, [PRECISION])
    draft.faults.extend(faults)
    return dict(values)


def _with_described_hardware(draft: _Draft, cluster: Values) -> Values:
    """The cluster's values, without a hardware that nothing describes or whose file is at fault; each fault is blamed."""
    if "hardware" not in cluster:
        return cluster
    try:
        hardware_facts(cluster["hardware"])
    except ConfigError as error:
        for problem in str(error).splitlines():
            draft.blame("cluster.hardware", problem)
        return {key: value for key, value in cluster.items() if key != "hardware"}
    return cluster


def _with_cores(cluster: Values) -> Values:
    """The cluster's values with a CPU's cores: those given, else those its samples were taken on, else this machine's."""
    if "cores" in cluster or hardware_facts(cluster["hardware"]).kind != "cpu":
        return cluster
    directory = samples_directory(cluster["profile"], home_of(cluster["profile"], DATA))
    sampled = read_manifest(directory).device.get("cores") if (directory / "manifest.json").is_file() else None
    return cluster | {"cores": sampled or os.cpu_count() or 1}
