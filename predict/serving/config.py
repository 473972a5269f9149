"""A serving config: the model, the devices, the engine and the load, with every fault of them in one error.

model: llama3-8b                      # a shipped model, the path of a config.json, or its keys
hardware: H100                        # a device of configs/hardware
placement: {tp: 1, precision: bf16}   # the keys of ServerPlacement
engine: {name: vllm-v1, max_num_seqs: 128}   # an engine of configs/engines, and settings over its own
speculation: {kind: eagle, tokens: 3}        # drafts that each decode verifies: the keys of Speculation
load: {rate: 8, prompt: 600, output: 250}    # the keys of Load
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from predict.config.choices import search_takes
from predict.config.document import Config, Incoming, read_config
from predict.config.draft import as_read, shipped_file, shipped_instead
from predict.config.json_schema import document_schema, model_schema, section_schema
from predict.config.overrides import parse_overrides
from predict.huggingface.config_json import override, read_model
from predict.kinds import KINDS, RL, SERVING, TRAINING, LoadedRun, as_loaded, require_kind
from predict.model.spec import ModelSpec
from predict.prices.sample_provenance import require_known
from predict.serving.fleet import FleetSettings, TierSettings
from predict.serving.formats import QUANTIZATION, as_run_by, format_faults, published_in, stated_formats
from predict.serving.requests import read_requests
from predict.serving.rules import (
    drafts_of,
    exchange_faults,
    fleet_faults,
    limit_faults,
    load_faults,
    load_key_faults,
    placement_faults,
    prompt_key_faults,
    step_token_faults,
    without_replaced,
)
from predict.serving.server import (
    USUAL,
    EngineSettings,
    Server,
    ServerPlacement,
    cluster_of,
    engine_fault,
    engine_names,
    engine_settings,
    version_numbers,
    with_given,
)
from predict.serving.speculation import NAME as SPECULATION
from predict.serving.speculation import Speculation
from predict.serving.traffic import Load, Traffic, load_of, with_known_prompts, with_mean_length
from sampling.errors import ConfigError
from sampling.files.disk import is_missing
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, shown
from sampling.files.schema import build, check, keys_of, unknown_keys
from sampling.hardware.cluster import Cluster, Link, hardware_beside, hardware_facts, known_hardware, load_cluster
from sampling.store.profiles import (
    default_profile,
    home_of,
    known_profiles,
    profile_in_use,
    read_manifest,
    samples_directory,
)

SECTIONS = ("model", "hardware", "profile", "placement", "engine", "speculation", "load", "fleet", "tiers")
OF_TRAINING = {
    "adapters": "a section of training configs; servers of adapters are not modelled, and merged ones cost nothing: remove it"
}
"""Sections that a server might be thought to have, and why it has none."""
USUAL_HARDWARE = "H100"
REQUIRED = {"model": "llama3-8b", "hardware": USUAL_HARDWARE}
Values = dict[str, Any]
Section = TypeVar("Section")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRun(LoadedRun):
    """A server and its load. `name` is the config file's stem."""

    kind = SERVING
    name: str
    server: Server
    gpus_per_node: int
    """GPUs that a node of the device usually has; the server may take a part of them."""
    load: Load
    """The load as stated, or the means of the requests of its file."""
    traffic: Traffic | None = None
    """The requests of the load's file."""
    fleet: FleetSettings = field(default_factory=FleetSettings)
    """Replicas, and where prompts are computed."""
    tiers: TierSettings = field(default_factory=TierSettings)
    """Memory behind the cache."""

    @property
    def prefill(self) -> Server | None:
        """The server that computes prompts where it is apart."""
        if not self.fleet.prefill_replicas:
            return None
        placement = replace(self.server.placement, tp=self.fleet.prefill_tp or self.server.tp)
        ranks = placement.gpus
        cluster = self.server.cluster
        if ranks != self.server.placement.gpus:
            per_node = cluster.whole_node
            nodes = -(-ranks // per_node)
            cluster = cluster.on_fewer(nodes=nodes, gpus_per_node=-(-ranks // nodes))
        return replace(self.server, placement=placement, cluster=cluster)

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        decode = self.server.placement.gpus * max(self.fleet.replicas, self.fleet.most_replicas)
        prefill = self.prefill
        return decode + (prefill.placement.gpus * self.fleet.prefill_replicas if prefill else 0)

    @property
    def between_pools(self) -> Link:
        """The link over which a GPU of one pool sends to the other: that of a node where it holds both."""
        cluster = self.server.cluster
        return cluster.link_in_node(self.gpus) if self.gpus <= cluster.whole_node else cluster.inter_node

    @property
    def engine_name(self) -> str:
        return self.server.engine_name


def read_serving(config: Config, overrides: Sequence[str]) -> tuple[Incoming, list[str]]:
    """The content of a serving config under settings, whose values may be choices; and the settings of a model that it names by a file."""
    given = read_config(config)
    if KINDS[SERVING].section not in given.content:
        require_kind(given.content, (RL, TRAINING), given.sources)
    return given, given.put_settings(overrides, ("model",))


def load_serving(config: Config, overrides: Sequence[str] = ()) -> ServingRun:
    """Read a serving config; `overrides` are settings such as `load.rate=12`. ConfigError has a line for each fault."""
    if loaded := as_loaded(config, ServingRun, overrides):
        return loaded
    given, of_model = read_serving(config, overrides)
    document, faults = given.content, given.faults
    faults += unknown_keys({key: value for key, value in document.items() if key not in OF_TRAINING}, SECTIONS)
    faults += [Fault(path=key, problem=why) for key, why in OF_TRAINING.items() if key in document]
    if isinstance(load_keys := document.get("load"), dict):
        options = frozenset(key for key in load_keys if f"load.{key}" in given.sources)
        document["load"] = without_replaced(load_keys, options)
        faults += load_key_faults(document["load"])
    faults += [
        Fault(path=name, problem=f"missing; give it, for example {name}: {example}")
        for name, example in REQUIRED.items()
        if name not in document
    ]
    run = _run(document, of_model, given.path, faults)
    if faults or run is None:
        raise config_error(faults, given.sources)
    if run.load.file:
        traffic = read_requests(given.path.parent / run.load.file)
        faults += prompt_key_faults(run.load, traffic)
        traffic = with_known_prompts(traffic, run.load)
        run = replace(run, load=load_of(traffic, run.load), traffic=traffic)
    if faults := [*faults, *load_faults(run.server, run.load, run.traffic)]:
        raise config_error(faults, given.sources)
    return run


def _run(document: Values, of_model: Sequence[str], path: Path, faults: list[Fault]) -> ServingRun | None:
    """The server and the load of a config without the requests of the load's file; None with faults."""
    model, stated = _model(document.get("model"), of_model, path, faults) if "model" in document else (None, {})
    hardware = _hardware(document.get("hardware"), path, faults) if "hardware" in document else None
    if model is not None and stated:
        stated = as_run_by(str(_mapping(document, "engine", []).get("name", USUAL)), stated)
        document["placement"] = {**stated, **_mapping(document, "placement", faults)}
    published = _published_formats(document)
    placement = _section(document, "placement", ServerPlacement, faults)
    if hardware is not None and placement is not None:
        faults += format_faults(placement.precision, placement.kv_precision, hardware_facts(hardware))
    engine_name, engine = _engine(document, hardware, placement.dp if placement else 1, faults)
    load = _load(document, path.parent, faults)
    fleet = _section(document, "fleet", FleetSettings, faults)
    tiers = _section(document, "tiers", TierSettings, faults)
    if model is not None and placement is not None and fleet is not None:
        faults += fleet_faults(model, placement, fleet)
    speculation = _section(document, SPECULATION, Speculation, faults)
    draft = None
    if model is not None and placement is not None:
        faults += placement_faults(model, placement)
        if speculation is not None:
            speculation, draft = drafts_of(speculation, model, placement, path.parent, SPECULATION, faults)
    if model is not None and engine is not None:
        faults += [*limit_faults(model, engine), *step_token_faults(model, engine)]
        if placement is not None:
            faults += exchange_faults(model, placement, engine)
    if faults or model is None or hardware is None or placement is None or engine is None or load is None:
        return None
    assert fleet is not None and tiers is not None and speculation is not None  # they are none only with faults
    server = Server(
        model=model,
        cluster=_cluster(hardware, placement.gpus, _profile(document.get("profile"), hardware)),
        placement=placement,
        engine_name=engine_name,
        engine=engine,
        speculation=speculation,
        draft=draft,
        model_given_as=document["model"] if isinstance(document["model"], str) else "",
        published_formats=published,
    )
    of_node = hardware_facts(hardware).gpus_per_node
    return ServingRun(name=path.stem, server=server, gpus_per_node=of_node, load=load, fleet=fleet, tiers=tiers)


def _published_formats(document: Values) -> Mapping[str, str]:
    """The formats in which a named model is published, where its placement states no precision."""
    name, engine = document.get("model"), str(_mapping(document, "engine", []).get("name", USUAL))
    is_stated = "precision" in _mapping(document, "placement", [])
    return {} if is_stated or not isinstance(name, str) else published_in(name, engine)


def _load(document: Values, folder: Path, faults: list[Fault]) -> Load | None:
    """The load, with the means of its distributions for its lengths; a distribution's file is relative to the config's folder."""
    load = _section(document, "load", Load, faults)
    for of in ("prompt", "output"):
        try:
            load = load and with_mean_length(load, of, folder)
        except ConfigError as error:
            faults.append(Fault(path=f"load.{of}_lengths", problem=str(error)))
    if load and load.file and is_missing(file := folder / load.file):
        problem = f"{shown(load.file)} (that is {file}): there is no such file; give its path from the config's folder"
        faults.append(Fault(path="load.file", problem=problem))
    return load


def _profile(given: Any, hardware: str) -> str:
    """The profile that a config names, or the one of its hardware. SamplesError for a named one without samples."""
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


def _model(
    given: Any, settings: Sequence[str], path: Path, faults: list[Fault]
) -> tuple[ModelSpec | None, Mapping[str, str]]:
    """The model from its file or keys, and the formats of weights and cache that these state; `settings` are those over its file."""
    name = "model"
    if isinstance(given, str):
        file = shipped_file("model", given) or path.parent / given
        keys, wrong = read_json(file)
        if keys is None:
            said, instead = as_read("model", given, file), shipped_instead("model", given, file)
            faults += [Fault(path="model", problem=f"{said}: {fault.problem}{instead}") for fault in wrong]
            return None, {}
        given, name = keys, file.stem
        for setting in parse_overrides(settings)[0]:
            given = override(given, setting.key, setting.value)
    if not isinstance(given, Mapping):
        faults.append(
            Fault(path="model", problem=f"{shown(given)} is neither a name, a path nor a mapping of keys; give one")
        )
        return None, {}
    formats, wrong = stated_formats(given[QUANTIZATION]) if given.get(QUANTIZATION) is not None else ({}, [])
    reading = read_model({key: value for key, value in given.items() if key != QUANTIZATION}, name=name)
    faults += [fault.under("model") for fault in (*wrong, *reading.faults)]
    return reading.spec, formats


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
    given = _mapping(document, name, faults)
    made, wrong = build(cls, given, section=name)
    lists = {key.name for key in keys_of(DECLARED_SECTIONS[name][0]) if key.element}
    for fault in wrong:
        key = fault.path.removeprefix(f"{name}.")
        # a list is no choice of a key that takes one
        faults.append(fault if key in lists else replace(fault, problem=fault.problem + search_takes(given.get(key))))
    return made


def _engine(document: Values, hardware: str | None, dp: int, faults: list[Fault]) -> tuple[str, EngineSettings | None]:
    """The engine's name and settings; no settings where its keys have faults, or where the device is not known."""
    values = _mapping(document, "engine", faults)
    name, written = values.pop("name", USUAL), values.pop("version", "")
    version = str(written)
    if isinstance(written, float) and len(version.partition(".")[2]) == 1:
        faults.append(Fault(path="engine.version", problem=f"{version} may be {version}0 as well; write it in quotes"))
    if version and not version_numbers(version):
        faults.append(
            Fault(path="engine.version", problem=f"{shown(version)} is not a version; write for example 0.12.0")
        )
    if unknown := engine_fault(name, "engine.name"):
        faults.append(unknown)
        return str(name), None
    defaults = engine_settings(name, hardware_facts(hardware or USUAL_HARDWARE), dp=dp, version=version)
    good, wrong = check({**asdict(defaults), **values}, keys_of(EngineSettings), section="engine")
    faults += wrong
    if wrong:
        return name, None
    settings = with_given(defaults, {key: good[key] for key in values})
    faults += [fault.under("engine") for fault in settings.contradictions()]
    return name, None if hardware is None else settings


def _mapping(document: Values, name: str, faults: list[Fault]) -> Values:
    value = document.get(name, {})
    if isinstance(value, dict):
        return dict(value)
    faults.append(Fault(path=name, problem=f"{shown(value)} is not a mapping of keys; write {name}: {{key: value}}"))
    return {}


DECLARED_SECTIONS: Mapping[str, tuple[type, str]] = {
    "placement": (ServerPlacement, "How the model is spread over its GPUs."),
    "engine": (
        EngineSettings,
        "An engine of configs/engines by its `name`, as its newest release starts or an earlier `version`, and settings in place of its own.",
    ),
    SPECULATION: (Speculation, "Drafts of further tokens, which one step verifies."),
    "load": (Load, "The requests."),
    "fleet": (
        FleetSettings,
        "Replicas of the server, what chooses among them, and the pool that computes prompts where it is apart.",
    ),
    "tiers": (TierSettings, "Memory behind the cache of keys and values."),
}
"""Section → the dataclass whose fields are its keys, and its meaning."""
ENGINE_NAME = "An engine of configs/engines."
ENGINE_VERSION = "Its version, such as 0.12.0, where defaults have changed since; the newest without one."


def serving_schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Rules between keys are beyond it; loading a config checks them."""
    sections = {name: section_schema(*declared) for name, declared in DECLARED_SECTIONS.items()}
    engine = sections["engine"]
    name = {"description": ENGINE_NAME, "enum": list(engine_names()), "default": USUAL}
    version = {"description": ENGINE_VERSION, "type": "string", "default": ""}
    own = {"name": name, "version": version, **engine["properties"]}
    sections["engine"] = {**engine, "properties": own, "required": []}
    hardware = {"description": "a device of configs/hardware, or the path of a file like those", "type": "string"}
    properties = {
        "model": model_schema(),
        "hardware": {**hardware, "examples": known_hardware()},
        "profile": {"description": "name under data/samples of the device's measurements", "type": "string"},
        **sections,
    }
    return document_schema("steptime serving config", properties, ("model", "hardware"))
