"""A run config from other tools' files: Megatron-LM's arguments, torchtitan's TOML, DeepSpeed's JSON and Primus' YAML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from predict.config.document import Document
from predict.config.draft import REQUIRED_SECTIONS
from predict.config.load import load
from predict.config.overrides import parse_overrides
from predict.convert import deepspeed
from predict.convert import torchtitan as torchtitan_read
from predict.convert.arguments import Arguments, read_settings
from predict.convert.megatron import (
    BATCH,
    FLASH,
    FLASH_OF,
    LOCAL_LAYERS,
    OLDER_FLASH,
    read_execution,
    read_plan,
    read_precision,
)
from predict.convert.megatron_model import (
    BASE,
    EPSILON,
    model_section,
    read_model_arguments,
    shipped_models_of_shape,
    with_numerics,
)
from predict.convert.megatron_script import read_mapping, read_script
from predict.huggingface.config_json import load_model, override
from predict.kinds import KINDS, kind_of
from predict.model.shipped import shipped_model, shipped_models
from predict.model.spec import ModelSpec
from predict.run.execution import Execution
from predict.run.frameworks import ON_GPUS, framework_settings
from predict.run.plan import Plan
from sampling.errors import Checks
from sampling.files import disk as regular
from sampling.files.documents import NotYamlError, parse_yaml, read_json, read_yaml
from sampling.files.faults import Fault, config_error, did_you_mean, shown
from sampling.hardware.cluster import hardware_facts

# One file of another tool, read as far as it goes: the sections of a run config that it gives, and what it leaves over.

YAML, JSON, TOML = (".yml", ".yaml"), ".json", ".toml"
MOST_BYTES = 1_000_000
"""Largest script or TOML file that is read; people write them."""
MOST_NAMED = 3
"""Unknown settings of a file that an error names."""
OTHER_FILES = (
    "give a launch script, a list of arguments, YAML, TOML or JSON of Megatron-LM, torchtitan, DeepSpeed or Primus"
)
LAUNCHER = {"nnodes": "nodes", "nproc_per_node": "gpus_per_node"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFile:
    """The settings of a run that a file states."""

    sections: Mapping[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_read: Mapping[str, Any] = field(default_factory=dict)


def read_foreign(path: Path, *, chosen_model: Any = None) -> ForeignFile:
    """Read a file by what it holds; `chosen_model` is the model that the user names in place of the file's."""
    kind = path.suffix.lower()
    if kind in (*YAML, JSON):
        document, faults = (read_json if kind == JSON else read_yaml)(path)
        if document is None:
            return ForeignFile(faults=faults)
        return _read_document(document, chosen_model, is_json=kind == JSON)
    try:
        text = regular.read_text(path, most_bytes=MOST_BYTES)
        return _read_text(text, chosen_model, name=path.stem, is_toml=kind == TOML)
    except regular.NotReadError as error:
        return _faulty(str(error))
    except tomllib.TOMLDecodeError as error:
        return _faulty(f"not valid TOML: {error}; mend the syntax")


def _read_text(text: str, chosen_model: Any, *, name: str, is_toml: bool) -> ForeignFile:
    if is_toml:
        document = tomllib.loads(text)
        return _unless_unknown(_read_torchtitan(document, chosen_model), deepspeed.flat(document), "torchtitan")
    arguments = read_script(text)
    if not arguments:
        return _faulty(f"it holds no arguments; {OTHER_FILES}")
    return _unless_unknown(_read_megatron(arguments, chosen_model, name=name), arguments, "Megatron-LM")


def _faulty(problem: str) -> ForeignFile:
    return ForeignFile(faults=[Fault(path="", problem=problem)])


def _unless_unknown(read: ForeignFile, values: Mapping[str, Any], tool: str) -> ForeignFile:
    """The file as it was read, or a fault where none of its values is a setting of the tool that it was read as one of."""
    if not values or read.not_read.keys() != values.keys():
        return read
    names = ", ".join([*list(values)[:MOST_NAMED], *(["…"] if len(values) > MOST_NAMED else [])])
    return _faulty(f"none of its settings ({names}) is one of {tool}'s that are read; {OTHER_FILES}")


def _read_document(document: Mapping[Any, Any], chosen_model: Any, *, is_json: bool) -> ForeignFile:
    if all(section in document for section in REQUIRED_SECTIONS):
        return _faulty("is a run config already; give it to `predict one-batch`")
    kind = KINDS[kind_of(document)]
    if isinstance(document.get(kind.section), Mapping):  # Megatron-LM has a `load` too, which is a path
        return _faulty(f"is {kind.title}, not a file of another tool; {OTHER_FILES}")
    if is_primus(document):
        return _read_primus(document, chosen_model)
    arguments = read_mapping(document)
    if is_json and not {"num_layers", "micro_batch_size", "tensor_model_parallel_size"} & set(arguments):
        return _unless_unknown(_read_deepspeed(document), deepspeed.flat(document), "DeepSpeed")
    return _unless_unknown(_read_megatron(arguments, chosen_model, name="model"), arguments, "Megatron-LM")


def _read_megatron(
    values: Mapping[str, Any], chosen_model: Any, *, name: str, model: Mapping[str, Any] | None = None
) -> ForeignFile:
    """Megatron-LM's arguments, those of Megatron-DeepSpeed among them; `model` is the section where it is known already."""
    is_deepspeed = "deepspeed" in values
    given = Arguments(values=deepspeed.as_megatron(values) if is_deepspeed else values)
    section, spec = _model_of(given, chosen_model, name, model or {})
    given = replace(given, layers=spec.layers if spec else given.count("num_layers") or 0)
    plan = read_plan(given)
    if is_deepspeed:
        given.passed_over("deepspeed", "deepspeed_config", "no_pipeline_parallel", "enable_expert_tensor_parallelism")
        given.passed_over(*deepspeed.RECOMPUTING)
        plan["zero"] = given.count("zero_stage") or 0
    given.passed_over(
        "moe_router_force_load_balancing"
    )  # tokens are balanced unless execution.expert_load says otherwise
    if instances := given.count("num_distributed_optimizer_instances"):
        plan["instances"] = instances
    execution = read_execution(given)
    framework = LOCAL_LAYERS if given.text("transformer_impl", "") == "local" else ON_GPUS
    if is_deepspeed:
        execution = {key: execution[key] for key in deepspeed.FROM_ARGUMENTS if key in execution}
        is_flash = [given.switch(name) for name in deepspeed.FLASH]
        execution["attention"] = "fa2" if any(is_flash) else "unfused"
    sections = {
        "cluster": {own: count for theirs, own in LAUNCHER.items() if (count := given.count(theirs))},
        "plan": plan,
        "batch": read_settings(BATCH, given).get("batch", {}),
        "precision": read_precision(given),
        "execution": {"framework": deepspeed.FRAMEWORK if is_deepspeed else framework, **execution},
        **section,
    }
    return ForeignFile(sections=sections, faults=given.faults, notes=given.notes, not_read=given.left_over)


def _model_of(
    given: Arguments, chosen_model: Any, name: str, known: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ModelSpec | None]:
    """The model's section and its spec, as far as the arguments or the name chosen in their place show."""
    if chosen_model is not None or known:
        silent = Arguments(values=given.values)  # what is wrong with a model that is replaced does not matter
        read_model_arguments(silent, name=name)
        given.passed_over(*silent.used, BASE, EPSILON)
        path = shipped_model(chosen_model) if isinstance(chosen_model, str) else None
        return known if chosen_model is None else {}, load_model(path) if path else None
    spec = read_model_arguments(given, name=name)
    if spec is None or given.faults:
        return {}, spec
    if not spec.vocab:
        return _model_by_other_sizes(given, spec), spec
    section = model_section(spec)
    if section is None:
        given.fault("num_layers", "no family of models has this shape; give --set model=FILE, a config.json of it")
    return {} if section is None else {"model": with_numerics(section, given)}, spec


def _model_by_other_sizes(given: Arguments, spec: ModelSpec) -> Mapping[str, Any]:
    """The only shipped model of the sizes that are given, where the vocabulary is left to a tokenizer."""
    of_shape = shipped_models_of_shape(spec)
    if len(of_shape) != 1:
        who = f"{' and '.join(of_shape)} have these sizes" if of_shape else "no shipped model has these sizes"
        given.fault("vocab_size", f"missing, and {who}; give it, or --set model=NAME")
        return {}
    given.notes.append(f"vocab_size: not given; taken from {of_shape[0]}, the shipped model with the other sizes")
    return {"model": with_numerics(of_shape[0], given)}


def _read_primus(document: Mapping[Any, Any], chosen_model: Any) -> ForeignFile:
    framework, values = trainer_named(document), overridden(document)
    preset = model_name(document)
    path = shipped_model(preset)
    if path is None and chosen_model is None:
        near = did_you_mean(preset, shipped_models())
        return _faulty(f"model: Primus' preset {shown(preset)} is not a shipped model{near}; give --set model=NAME")
    model: dict[str, Any] = {} if path is None else {"model": path.stem}
    if framework == "torchtitan":
        read = _read_torchtitan(values, chosen_model or (path and path.stem))
        return ForeignFile(
            sections={**model, **read.sections}, faults=read.faults, notes=read.notes, not_read=read.not_read
        )
    if framework != "megatron":
        return _faulty(f"modules.pre_trainer.framework: {shown(framework)} is not read; megatron and torchtitan are")
    changed = {name: value for name, value in values.items() if name in SIZES_OVER_A_PRESET}
    if path is not None and changed and chosen_model is None:
        keys = read_json(path)[0] or {}
        for name, value in changed.items():
            keys = override(keys, name, 0 if value is None else value)
        model = {"model": keys}
    read = _read_megatron({**PRIMUS_DEFAULTS, **values}, chosen_model, name=preset, model=model)
    note = "modules.pre_trainer: the presets that it names are not read; what they set beyond the model is taken as Megatron-LM has it"
    left = {name: value for name, value in read.not_read.items() if name not in changed}
    return ForeignFile(sections=read.sections, faults=read.faults, notes=[note, *read.notes], not_read=left)


SIZES_OVER_A_PRESET = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_experts",
    "moe_router_topk",
    "mtp_num_layers",
)
"""Sizes that a Primus experiment changes in its model's preset."""
PRIMUS_DEFAULTS: Mapping[str, Any] = {"bf16": True, "attention_dropout": 0.0, "hidden_dropout": 0.0}
"""Values of Primus' language-model presets where Megatron-LM's own defaults differ (primus/configs/models/megatron)."""


def _read_torchtitan(document: Mapping[str, Any], chosen_model: Any) -> ForeignFile:
    given = Arguments(values=deepspeed.flat(document))
    name = chosen_model or torchtitan_read.read_model_name(given)
    given.passed_over("model.name", "model.flavor")
    path = shipped_model(name) if isinstance(name, str) else None
    if path is None and chosen_model is None:
        given.fault("model.flavor", f"{shown(name)} is not a shipped model; give --set model=NAME")
    sections = torchtitan_read.read_sections(replace(given, layers=load_model(path).layers if path else 0))
    model = {} if path is None or chosen_model is not None else {"model": path.stem}
    return ForeignFile(sections={**model, **sections}, faults=given.faults, notes=given.notes, not_read=given.left_over)


def _read_deepspeed(document: Mapping[Any, Any]) -> ForeignFile:
    given = Arguments(values=deepspeed.flat(document))
    sections = deepspeed.read_sections(given)
    return ForeignFile(sections=sections, faults=given.faults, notes=given.notes, not_read=given.left_over)


DEGREES = ("tp", "pp", "cp", "dp")
EXAMPLES: Mapping[str, str] = {"micro": "1", "seq_len": "4096"}
"""Keys of the batch that nothing else shows, with an example of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedConfig:
    """A run config made of other tools' files."""

    document: Document
    notes: tuple[str, ...]
    """How values were taken whose meaning differs here."""
    not_read: Mapping[str, str]
    """Settings of the files that change nothing here, or that are unknown: name → value, as written."""


def import_config(files: Sequence[Path | str], overrides: Sequence[str] = ()) -> ImportedConfig:
    """The run config that other tools' files of one run make: Megatron-LM's arguments (script, list or YAML), torchtitan's TOML,
    DeepSpeed's JSON, Primus' YAML. `overrides` such as `cluster.hardware=h100` add what they do not say.

    `.document` is a config for every function of `predict`, `.not_read` the settings that change nothing or are unknown. ConfigError
    lists every fault, and all that is missing with the setting that gives it.
    """
    paths = [Path(file) for file in files]
    given = {setting.path: setting.value for setting in parse_overrides(overrides)[0]}
    read = [read_foreign(file, chosen_model=given.get("model")) for file in paths]
    sources = {"": ", ".join(map(str, paths))}
    content, clashes = _merged(read)
    with Checks() as checks:
        for named, faults in [
            *zip(map(str, paths), (each.faults for each in read), strict=True),
            (sources[""], clashes),
        ]:
            with checks.one():
                if faults:
                    raise config_error(faults, {"": named})
    content = _with_cluster(content, given, sources)
    document = Document(name=paths[0].stem.partition(".")[0], content=content, sources=sources).with_settings(overrides)
    load(document)
    return ImportedConfig(
        document=document,
        notes=tuple(note for each in read for note in each.notes),
        not_read={name: shown(value) for each in read for name, value in each.not_read.items()},
    )


def _merged(read: Iterable[ForeignFile]) -> tuple[dict[str, Any], list[Fault]]:
    """The sections of all files, and a fault for each key on which two disagree."""
    content: dict[str, Any] = {}
    faults: list[Fault] = []

    def put(into: dict[str, Any], key: str, value: Any, path: str) -> None:
        there = into.setdefault(key, value)
        if there != value:
            faults.append(
                Fault(path=path, problem=f"{shown(there)} in one file and {shown(value)} in another; correct one")
            )

    for each in read:
        for section, values in each.sections.items():
            if isinstance(values, Mapping) and section != "model":
                into = content.setdefault(section, {})
                for key, value in values.items():
                    put(into, key, value, f"{section}.{key}")
            else:
                put(content, section, values, section)
    return content, faults


def _with_cluster(content: dict[str, Any], given: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """The content with the cluster, dp and the global batch that follow from what is known; ConfigError for what is missing."""
    cluster = dict(content.get("cluster", {}))
    cluster |= {key.removeprefix("cluster."): value for key, value in given.items() if key.startswith("cluster.")}
    plan = {**content.get("plan", {}), **_of_section("plan", given)}
    batch = {**content.get("batch", {}), **_of_section("batch", given)}
    named = isinstance(given.get("cluster"), str)
    missing = [] if named or "hardware" in cluster else [_missing("cluster.hardware", "h100")]
    missing += [] if "model" in content or "model" in given else [_missing("model", "llama3-8b")]
    missing += [_missing(f"batch.{key}", example) for key, example in EXAMPLES.items() if key not in batch]
    if missing:
        raise config_error(missing, sources)
    inside = [plan.get(key, 1) for key in ("tp", "pp", "cp")]
    of_replica = inside[0] * inside[1] * inside[2]
    if not named:
        cluster = _sized(cluster, of_replica * plan["dp"] if "dp" in plan else 0, sources)
        world = cluster["nodes"] * cluster["gpus_per_node"]
        plan.setdefault("dp", max(1, world // of_replica))
    dp = plan.get("dp", 1)
    instances = plan.pop("instances", 1)
    if instances > 1:
        plan["shard"] = dp * plan.get("cp", 1) // instances
    # Megatron-LM's default: one microbatch of each replica
    batch.setdefault("global", batch["micro"] * dp)
    return {
        "model": content.get("model", given.get("model")),
        "cluster": given["cluster"] if named else cluster,
        "plan": {key: value for key, value in plan.items() if key in DEGREES or value != getattr(Plan(), key, None)},
        "batch": batch,
        "precision": content.get("precision", given.get("precision")),
        "execution": _execution(content.get("execution", {}), cluster.get("hardware", "")),
    }


def _of_section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {path.partition(".")[2]: value for path, value in given.items() if path.startswith(f"{section}.")}


def _missing(path: str, example: str) -> Fault:
    return Fault(path=path, problem=f"no file says it; give it, for example --set {path}={example}")


def _sized(cluster: dict[str, Any], world: int, sources: Mapping[str, str]) -> dict[str, Any]:
    """The cluster with its nodes and GPUs per node: those given, else as many usual nodes as `world` ranks fill."""
    per_node = cluster.get("gpus_per_node") or min(hardware_facts(cluster["hardware"]).gpus_per_node, world or 10**9)
    if "nodes" not in cluster and not world:
        raise config_error([_missing("cluster.nodes", "8")], sources)
    return {**cluster, "nodes": cluster.get("nodes") or max(1, world // per_node), "gpus_per_node": per_node}


def _execution(read: Mapping[str, Any], hardware: str) -> dict[str, Any]:
    """The framework, and what differs from its settings."""
    framework = read.get("framework", "")
    architecture = hardware_facts(hardware).architecture if hardware else ""
    usual = {**asdict(Execution()), **framework_settings(framework, architecture), "framework": ""}
    given = {**read, "attention": FLASH_OF.get(architecture, OLDER_FLASH)} if read.get("attention") == FLASH else read
    return {key: value for key, value in given.items() if value != usual[key]}


# Primus' YAML: an experiment whose module `pre_trainer` overrides a preset of Megatron-LM's or torchtitan's arguments.

MODULES, TRAINER = "modules", "pre_trainer"
VARIABLE = re.compile(r"\$\{\w+(?::([^${}]*))?\}")
"""`${PRIMUS_TP:1}`: a variable of the environment with its default."""
SUFFIX = re.compile(r"(_v0\.\d)?\.ya?ml$")
"""The end of a preset's file name, and Mistral's version, which says nothing of the sizes."""


def is_primus(document: Mapping[Any, Any]) -> bool:
    modules = document.get(MODULES)
    return isinstance(modules, Mapping) and isinstance(modules.get(TRAINER), Mapping)


def trainer_named(document: Mapping[Any, Any]) -> str:
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
