"""A serving config: the model, the devices, the engine and the load, with every fault of them in one error.

model: llama3-8b                      # a shipped model, the path of a config.json, or its keys
hardware: H100                        # a device of configs/hardware
placement: {tp: 1, precision: bf16}   # the keys of Placement
engine: {name: vllm-v1, max_num_seqs: 128}   # an engine of configs/engines, and settings over its own
load: {rate: 8, prompt: 600, output: 250}    # the keys of Load
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from predict.config.draft import OF_RL, OF_SERVING, OF_TRAINING, require_kind
from predict.config.overrides import OPTION, parse_overrides
from predict.config.shipped import as_read, shipped_file, shipped_instead
from predict.huggingface.config_json import read_model
from predict.model.spec import ModelSpec
from predict.prices.whose_rows import require_known
from predict.serving.engines import USUAL, engine_fault, engine_settings
from predict.serving.mixers.served import is_served
from predict.serving.rules.load_keys import load_key_faults, prompt_key_faults, without_replaced
from predict.serving.rules.positions import limit_faults, load_faults
from predict.serving.rules.step_tokens import step_token_faults
from predict.serving.scheduler.request_file import read_requests
from predict.serving.scheduler.traffic import Load, Traffic, load_of, with_known_prompts, with_mean_length
from predict.serving.server import EngineSettings, Placement, Server, cluster_of
from sampling.errors import ConfigError
from sampling.files.documents import read_json, read_yaml
from sampling.files.faults import Fault, config_error, shown
from sampling.files.keys import keys_of
from sampling.files.schema import build, check, unknown_keys
from sampling.hardware.cluster import Cluster, hardware_beside, hardware_facts, load_cluster
from sampling.store.manifest import read_manifest
from sampling.store.profiles import default_profile, home_of, known_profiles, profile_in_use, samples_directory

SECTIONS = ("model", "hardware", "profile", "placement", "engine", "load")
REQUIRED = {"model": "llama3-8b", "hardware": "H100"}
Values = dict[str, Any]
Section = TypeVar("Section")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRun:
    """A server and its load. `name` is the config file's stem."""

    name: str
    server: Server
    gpus_per_node: int
    """GPUs that a node of the device usually has, of which the server may take a part."""
    load: Load
    """As stated, or the means of the requests of its file."""
    traffic: Traffic | None = None
    """The requests of the load's file."""

    @property
    def engine_name(self) -> str:
        return self.server.engine_name


def is_serving_config(path: Path | str) -> bool:
    """Whether a file has a load, which no other config has."""
    document, _ = read_yaml(Path(path))
    return document is not None and OF_SERVING in document


def load_serving(path: Path | str, overrides: Sequence[str] = ()) -> ServingRun:
    """Read a serving config; `overrides` are settings such as `load.rate=12`. ConfigError has a line for each fault."""
    path = Path(path)
    document, faults = read_yaml(path)
    sources = {"": str(path)}
    if document is None:
        raise config_error(faults, sources)
    if OF_SERVING not in document:
        require_kind(document, (OF_RL, OF_TRAINING), sources)
    faults += overridden(document, overrides, sources)
    faults += unknown_keys(document, SECTIONS)
    if isinstance(given := document.get("load"), dict):
        options = frozenset(key for key in given if f"load.{key}" in sources)
        document["load"] = without_replaced(given, options)
        faults += load_key_faults(document["load"])
    faults += [
        Fault(path=name, problem=f"missing; give it, for example {name}: {example}")
        for name, example in REQUIRED.items()
        if name not in document
    ]
    model = _model(document.get("model"), path, faults) if "model" in document else None
    hardware = _hardware(document.get("hardware"), path, faults) if "hardware" in document else None
    placement = _section(document, "placement", Placement, faults)
    engine_name, engine = _engine(document, faults)
    load = _load(document, path.parent, faults)
    if model is not None and placement is not None:
        faults += placement_faults(model, placement)
    if model is not None and engine is not None:
        faults += [*limit_faults(model, engine), *step_token_faults(model, engine)]
    if faults or model is None or hardware is None or placement is None or engine is None or load is None:
        raise config_error(faults, sources)
    profile = _profile(document.get("profile"), hardware)
    cluster = _cluster(hardware, placement.gpus, profile)
    server = Server(model=model, cluster=cluster, placement=placement, engine_name=engine_name, engine=engine)
    run = ServingRun(
        name=path.stem,
        server=server,
        gpus_per_node=hardware_facts(hardware).gpus_per_node,
        load=load,
    )
    if load.file:
        file = path.parent / load.file
        if not file.exists():
            problem = (
                f"{shown(load.file)} (that is {file}): there is no such file; give its path from the config's folder"
            )
            raise config_error([Fault(path="load.file", problem=problem)], sources)
        traffic = read_requests(file)
        faults += prompt_key_faults(load, traffic)
        run = _with_requests(run, with_known_prompts(traffic, load))
    if faults := [*faults, *load_faults(server, run.load, run.traffic)]:
        raise config_error(faults, sources)
    return run


def _load(document: Values, folder: Path, faults: list[Fault]) -> Load | None:
    """The load, with the means of its distributions for its lengths; a distribution's file is relative to the config's folder."""
    load = _section(document, "load", Load, faults)
    for of in ("prompt", "output"):
        try:
            load = load and with_mean_length(load, of, folder)
        except ConfigError as error:
            faults.append(Fault(path=f"load.{of}_lengths", problem=str(error)))
    return load


def _profile(given: Any, hardware: str) -> str:
    """The profile that a config names, or that of its hardware. SamplesError for a named one without samples."""
    if given is None:
        return default_profile(hardware)
    require_known(str(given))
    return str(given)


def _cluster(hardware: str, ranks: int, profile: str) -> Cluster:
    """The machines of a server. On a CPU a rank has one core, of a machine whose cores are all busy, as sessions time them: the one on
    which the profile's samples were taken."""
    if hardware_facts(hardware).kind != "cpu":
        return cluster_of(hardware, ranks, profile)
    used = profile_in_use(profile)
    sampled = read_manifest(samples_directory(used, home_of(used))).device if used in known_profiles() else {}
    cores = max(ranks, int(sampled.get("cores", ranks)))
    return load_cluster(hardware=hardware, nodes=1, gpus_per_node=cores, cores=cores, profile=profile)


def _with_requests(run: ServingRun, traffic: Traffic) -> ServingRun:
    """The run with requests of a file, and their means for its load."""
    return replace(run, load=load_of(traffic, run.load), traffic=traffic)


def placement_faults(model: ModelSpec, placement: Placement) -> list[Fault]:
    """Layers that are not modelled, and placements that the model does not allow."""
    faults = [
        Fault(
            path="model",
            problem=f"{model.name} has {mixer} layers, which serving does not model yet; take another model",
        )
        for mixer in sorted({model.mixer(kind).NAME for kind in model.kinds() if not is_served(model.mixer(kind))})
    ]
    tp, ranks = placement.tp, placement.gpus
    if model.heads % tp:
        faults.append(
            Fault(
                path="placement.tp",
                problem=f"{tp} does not divide the {model.heads} heads of {model.name}; give one that does",
            )
        )
    if placement.dp > 1 and model.experts is not None and not placement.expert_parallel and model.experts.ffn % ranks:
        problem = (
            f"the width {model.experts.ffn:,} of the experts of {model.name} does not divide into slices for tp · dp = {ranks} GPUs; "
            "change tp or dp, or set expert_parallel: true"
        )
        faults.append(Fault(path="placement.dp", problem=problem))
    if placement.expert_parallel and model.experts is None:
        problem = f"true, but {model.name} has no experts; remove it, or take a mixture of experts"
        faults.append(Fault(path="placement.expert_parallel", problem=problem))
    elif placement.expert_parallel and model.experts is not None and model.experts.count % ranks:
        problem = f"the {model.experts.count} experts of {model.name} do not divide among tp · dp = {ranks} GPUs; change tp or dp"
        faults.append(Fault(path="placement.expert_parallel", problem=problem))
    return faults


def overridden(document: Values, overrides: Sequence[str], sources: dict[str, str]) -> list[Fault]:
    """Put the settings into the document."""
    settings, faults = parse_overrides(overrides)
    for setting in settings:
        sources[setting.path] = OPTION
        if not setting.key:
            document[setting.section] = setting.value
            continue
        section = document.setdefault(setting.section, {})
        if isinstance(section, dict):
            section[setting.key] = setting.value
        else:
            problem = f"the section is {shown(section)}; a key of it can be set only where it is a mapping"
            faults.append(Fault(path=setting.path, problem=problem))
    return faults


def _model(given: Any, path: Path, faults: list[Fault]) -> ModelSpec | None:
    name = "model"
    if isinstance(given, str):
        file = shipped_file("model", given) or path.parent / given
        keys, wrong = read_json(file)
        if keys is None:
            said, instead = as_read("model", given, file), shipped_instead("model", given, file)
            faults += [Fault(path="model", problem=f"{said}: {fault.problem}{instead}") for fault in wrong]
            return None
        given, name = keys, file.stem
    if not isinstance(given, Mapping):
        faults.append(
            Fault(path="model", problem=f"{shown(given)} is neither a name, a path nor a mapping of keys; give one")
        )
        return None
    reading = read_model(given, name=name)
    faults += [fault.under("model") for fault in reading.faults]
    return reading.spec


def _hardware(given: Any, path: Path, faults: list[Fault]) -> str | None:
    try:
        name = hardware_beside(str(given), path)
        hardware_facts(name)
    except ConfigError as error:
        faults += [Fault(path="hardware", problem=line) for line in str(error).splitlines()]
        return None
    return name


def _section(document: Values, name: str, cls: type[Section], faults: list[Fault]) -> Section | None:
    """The dataclass of a section, or None with faults."""
    made, wrong = build(cls, _mapping(document, name, faults), section=name)
    faults += wrong
    return made


def _engine(document: Values, faults: list[Fault]) -> tuple[str, EngineSettings | None]:
    values = _mapping(document, "engine", faults)
    name = values.pop("name", USUAL)
    if unknown := engine_fault(name, "engine.name"):
        faults.append(unknown)
        return str(name), None
    defaults = engine_settings(name)
    good, wrong = check({**asdict(defaults), **values}, keys_of(EngineSettings), section="engine")
    faults += wrong
    return name, None if wrong else replace(defaults, **good)


def _mapping(document: Values, name: str, faults: list[Fault]) -> Values:
    value = document.get(name, {})
    if isinstance(value, dict):
        return dict(value)
    faults.append(Fault(path=name, problem=f"{shown(value)} is not a mapping of keys; write {name}: {{key: value}}"))
    return {}
